"""The page in a real browser: it renders, answers the keyboard, and asks the network nothing."""

import json
import shutil

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
WIDTHS = [360, 1200]
RUNS = {
    "train and audit": Run.of(samples.train(), samples.audit()),
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
    def open_page(run, width=1200, *, scripts=True):
        path = tmp_path / "report.html"
        write_report(run, path)
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


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", RUNS)
def test_the_page_renders_without_errors_or_requests(open_page, name, width):
    browser = open_page(RUNS[name], width)
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
    for landmark in ("header", "nav", "main", "h1", "a.skip"):
        assert len(all_of(landmark)) == 1
    assert len(all_of("nav a")) == len(all_of("main > section > h2")) == 8
    for chart in all_of("svg"):
        assert chart.aria_role in ("img", "image")
        assert chart.accessible_name
    assert len(all_of("figure details table")) == len(all_of("figure > svg"))
    assert browser.find_element(By.ID, "threshold").accessible_name == "threshold_j"


def test_dark_and_paper_have_their_own_colours(open_page):
    browser = open_page(RUNS["demo"])

    def ground(**media):
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        return browser.execute_script("return getComputedStyle(document.body).backgroundColor")

    def scheme(value):
        return [{"name": "prefers-color-scheme", "value": value}]

    assert ground(features=scheme("light")) == "rgb(255, 255, 255)"
    assert ground(features=scheme("dark")) == "rgb(20, 24, 28)"
    assert ground(media="print", features=scheme("dark")) == "rgb(255, 255, 255)"
    assert not browser.find_element(By.TAG_NAME, "nav").is_displayed()
    ground(media="", features=[])
