"""The page in a real browser: it renders, answers the keyboard, and asks the network nothing.

Where axe-core is at hand, it looks for what some people could not read or use: `make axe` installs
it, or `AXE_CORE` names its file axe.min.js.
"""

import json
import os
import shutil
from pathlib import Path

import pytest
import samples
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from fedmmf.reports import Run, write_report

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="needs chromium and chromedriver (Debian: chromium, chromium-driver)",
)
WIDTHS = [390, 1280]
SCHEMES = ["light", "dark"]
ROOT = Path(__file__).parents[2]
AXE = Path(os.environ.get("AXE_CORE") or ROOT / "node_modules" / "axe-core" / "axe.min.js")
RUNS = {
    "train and audit": Run.of(samples.train(), samples.audit()),
    "audit": samples.audit(),
    "demo": samples.demo(),
    "hostile": samples.train(
        data=samples.HOSTILE, baselines=[{"name": "a name without end " * 9, "rmse": 1.0}]
    ),
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
    ):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('browser')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def open_page(browser, tmp_path):
    def open_page(run, width=1280, scheme="light", *, scripts=True):
        path = tmp_path / "report.html"
        write_report(run, path)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": features})
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        for log in ("browser", "performance"):
            browser.get_log(log)  # forget earlier pages
        browser.get(path.as_uri())
        return browser

    return open_page


def boxes(browser, selector):
    """Width and height on the screen of every match, after strokes."""
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(e => "
        "{const b = e.getBoundingClientRect(); return [b.left, b.right, b.width, b.height];});",
        selector,
    )


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", RUNS)
def test_the_page_renders_without_errors_or_requests(open_page, name, width, scheme):
    browser = open_page(RUNS[name], width, scheme)
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [
        e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"
    ]
    assert asked
    assert all(url.startswith(("file:", "data:")) for url in asked)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", RUNS)
def test_nothing_sticks_out_sideways(open_page, name, width):
    browser = open_page(RUNS[name], width)
    across = browser.execute_script("return document.documentElement.scrollWidth")
    assert across == browser.execute_script("return document.documentElement.clientWidth") == width
    for left, right, *_ in boxes(browser, "svg text, svg .mark"):
        assert left >= 0
        assert right <= width


@pytest.mark.parametrize("width", [360, *WIDTHS])
@pytest.mark.parametrize("name", RUNS)
def test_no_column_is_hidden(open_page, name, width):
    """Every cell is inside the page and has a width, whatever is folded open; none is cut off."""
    browser = open_page(RUNS[name], width)
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    across = browser.execute_script("return document.documentElement.scrollWidth")
    assert across == width
    found = boxes(browser, "tbody th, tbody td")
    assert found
    for left, right, wide, _ in found:
        assert 0 <= left < right <= width
        assert wide > 0
    cut = "return [...document.querySelectorAll('.box')].filter(b => b.scrollWidth > b.clientWidth)"
    assert browser.execute_script(cut) == []


def test_cards_name_their_values_on_a_narrow_screen(open_page):
    browser = open_page(RUNS["audit"], 390)
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    labels = browser.execute_script(
        "return [...document.querySelectorAll('.text tbody tr:first-child td')]"
        ".map(d => getComputedStyle(d, '::before').content)"
    )
    assert labels == ['"the attacker knows"', '"and claims to find"', '"success is"']


@pytest.mark.skipif(
    not AXE.is_file(), reason="needs axe-core: make axe, or AXE_CORE=.../axe.min.js"
)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", RUNS)
def test_axe_finds_nothing_that_shuts_people_out(open_page, name, width, scheme):
    browser = open_page(RUNS[name], width, scheme)
    # Not as a script of the page: its policy would refuse it.
    browser.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE.read_text()})
    found = browser.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "document.querySelectorAll('details').forEach(d => d.open = true);"
        "axe.run().then(r => done([r.passes.map(p => p.id),"
        " r.violations.map(v => [v.id, v.nodes.map(n => n.html)])]));"
    )
    passes, violations = found
    assert {"color-contrast", "landmark-one-main", "document-title"} <= set(passes)
    assert violations == []


@pytest.mark.parametrize("width", WIDTHS)
def test_every_chart_has_marks_that_can_be_seen(open_page, width):
    browser = open_page(RUNS["train and audit"], width)
    charts = browser.find_elements(By.CSS_SELECTOR, "figure > svg")
    assert len(charts) == 11
    for number in range(len(charts)):
        browser.execute_script(
            "document.querySelectorAll('figure > svg')[arguments[0]].id = 'looked-at'", number
        )
        seen = [w > 0 and h > 0 for *_, w, h in boxes(browser, "#looked-at .mark")]
        assert any(seen)
        browser.execute_script("document.getElementById('looked-at').removeAttribute('id')")


def test_the_slider_answers_the_keyboard(open_page):
    browser = open_page(RUNS["train and audit"])
    slider = browser.find_element(By.ID, "threshold")
    words = browser.find_element(By.ID, "threshold-words")
    dots = browser.find_elements(By.CSS_SELECTOR, "#threshold-charts .dot")
    before = words.text, [dot.get_attribute("cx") for dot in dots]
    assert before[0].startswith("With threshold_j = 0.05:")
    slider.send_keys(Keys.ARROW_RIGHT)
    assert words.text.startswith("With threshold_j = 0.0525:")
    assert slider.get_attribute("aria-valuetext") == "0.0525"
    moved = [dot.get_attribute("cx") for dot in dots]
    assert all(float(new) > float(old) for new, old in zip(moved, before[1], strict=True))
    slider.send_keys(Keys.HOME)
    assert words.text.startswith("With threshold_j = 0:")
    assert [dot.is_displayed() for dot in dots] == [True, True, False]  # no attack was tried there


def test_without_scripts_the_page_shows_the_runs_own_point(open_page):
    browser = open_page(RUNS["train and audit"], scripts=False)
    assert not browser.find_element(By.ID, "threshold").is_displayed()
    words = browser.find_element(By.ID, "threshold-words").text
    assert words.startswith("With threshold_j = 0.05:")
    assert browser.find_elements(By.CSS_SELECTOR, "#threshold-charts .curve")


def test_the_page_can_be_found_ones_way_in(open_page):
    browser = open_page(RUNS["train and audit"])

    def all_of(selector):
        return browser.find_elements(By.CSS_SELECTOR, selector)

    assert browser.find_element(By.TAG_NAME, "html").get_attribute("lang") == "en"
    for landmark in ("header", "nav", "main", "footer", "h1", "a.skip"):
        assert len(all_of(landmark)) == 1
    assert len(all_of("nav a")) == len(all_of("main > section > h2")) == 8
    for chart in all_of("figure > svg"):
        assert chart.aria_role in ("img", "image")
        assert chart.accessible_name
    assert len(all_of("figure details table")) == len(all_of("figure > svg"))
    assert browser.find_element(By.ID, "threshold").accessible_name == "threshold_j"


def test_dark_and_paper_have_their_own_colours(open_page):
    browser = open_page(RUNS["demo"])

    def context(**media):
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        return browser.execute_script("return getComputedStyle(document.body).backgroundColor")

    def scheme(value):
        return [{"name": "prefers-color-scheme", "value": value}]

    assert context(features=scheme("light")) == "rgb(255, 255, 255)"
    assert context(features=scheme("dark")) == "rgb(20, 24, 28)"
    assert context(media="print", features=scheme("dark")) == "rgb(255, 255, 255)"
    assert not browser.find_element(By.TAG_NAME, "nav").is_displayed()
    context(media="", features=[])
