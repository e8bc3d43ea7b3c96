"""The page in a real browser: it follows the server, and everybody can use it."""

import shutil

import pytest
from asking import eventually, port_of
from pictures import EMPTY, HOSTILE_STATUS, INCIDENTS, STATUS, TOKEN, WAITING
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from fedmmf.federation.page import StatusPage

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="needs chromium and chromedriver (Debian: chromium, chromium-driver)",
)
EVERYWHERE = "0.0.0.0"  # noqa: S104 - not a loopback address
WIDTHS = [320, 800, 1280]
PICTURES = {"ordinary": STATUS, "waiting": WAITING, "hostile": HOSTILE_STATUS, "empty": EMPTY}
# The least contrast of a text with what is behind it, over the whole page (WCAG 2, 1.4.3).
MIN_CONTRAST = """
const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
const light = (colour) => numbers(colour).slice(0, 3)
  .map((c) => c / 255)
  .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (e) => {
  for (; e; e = e.parentElement) {
    const found = getComputedStyle(e).backgroundColor;
    if (numbers(found)[3] !== 0) return found;
  }
  return "rgb(255, 255, 255)";
};
let least = [99, ""];
for (const e of document.querySelectorAll("body *")) {
  const says = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
  if (!says || !e.checkVisibility()) continue;
  const style = getComputedStyle(e);
  const colour = e instanceof SVGElement ? style.fill : style.color;
  const [a, b] = [light(colour), light(behind(e))].sort((x, y) => y - x);
  const contrast = (a + 0.05) / (b + 0.05);
  if (contrast < least[0]) least = [contrast, e.outerHTML.slice(0, 80)];
}
return least;
"""
FOCUSED = """
const e = document.activeElement;
return e.getAttribute("href") ?? e.getAttribute("aria-labelledby") ?? e.tagName;
"""


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
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def visit(browser, serve):
    """Opens a page on a screen."""

    def visit(status=STATUS, width=1280, *, scripts=True, scheme="light", **settings):
        page, board = serve(status, **settings)
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        browser.get_log("browser")  # forget earlier pages
        browser.get(page.url)
        return page, board

    yield visit
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    browser.get("about:blank")  # before the server goes


@pytest.fixture
def text(browser):
    return lambda name: browser.find_element(By.ID, name).text


def test_the_page_follows_the_server_without_a_reload(visit, browser, text):
    _, board = visit()
    region = browser.find_element(By.CSS_SELECTOR, "#sites .scroll")
    browser.execute_script(
        "window.mark = 1; arguments[0].focus(); document.querySelector('#earlier-incidents "
        "details').open = true; scrollTo(0, 333)", region,
    )  # fmt: skip
    board.show(
        state="finished", detail="All is done.", round=60, held_out=(1.0, 0.5), evaluation=None,
        sites=STATUS.sites[:2], incidents=INCIDENTS[:9],
    )  # fmt: skip
    eventually(lambda: text("detail") == "All is done.")
    assert text("state") == "Finished"
    assert browser.title == "Finished: Books of the north"
    assert "60 of 60" in text("figures")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#site-rows tr")) == 2
    assert len(browser.find_elements(By.CSS_SELECTOR, "#held-out circle")) == 1
    assert "0.9422" not in browser.page_source
    details = browser.find_element(By.CSS_SELECTOR, "#earlier-incidents details")
    assert details.get_attribute("open")
    assert len(details.find_elements(By.TAG_NAME, "li")) == 3
    assert browser.execute_script("return [window.mark, scrollY]") == [1, 333]
    assert browser.switch_to.active_element == region
    assert browser.get_log("browser") == []


def test_things_come_and_go(visit, browser, text):
    """From an empty picture to a full one and back, in place, is the same as a new page."""
    _, board = visit(EMPTY)
    for status in (STATUS, HOSTILE_STATUS, EMPTY, STATUS):
        board.change(lambda _, status=status: status.but(detail=f"{len(status.sites)} sites"))
        eventually(lambda status=status: text("detail").startswith(f"{len(status.sites)} sites"))
        parts = "return [...document.querySelectorAll('[data-live]')].map(e => e.outerHTML)"
        patched = browser.execute_script(parts)
        browser.refresh()
        assert patched == browser.execute_script(parts)
    assert browser.get_log("browser") == []


def test_a_lost_connection_is_shown_and_mended(visit, browser, text, serve):
    page, board = visit()
    port = port_of(page)
    eventually(lambda: text("live") != "")
    assert text("lost") == ""
    page.stop()
    eventually(lambda: text("lost").startswith("No connection to the server since"))
    assert text("live") == ""
    board.show(detail="While you were away")
    again = StatusPage(board, port=port, token=TOKEN, actions={})
    again.start()
    try:
        eventually(lambda: text("lost") == "")
        eventually(lambda: text("detail") == "While you were away")
        browser.get("about:blank")
    finally:
        again.stop()


def test_a_new_token_is_asked_for(visit, browser, text):
    page, board = visit(host=EVERYWHERE)
    port = port_of(page)
    eventually(lambda: text("live") != "")
    page.stop()
    again = StatusPage(board, host=EVERYWHERE, port=port, token="new", actions={})  # noqa: S106
    again.start()
    try:
        eventually(lambda: text("lost").startswith("The server wants another token"))
    finally:
        browser.get("about:blank")
        again.stop()


def test_a_page_for_others_works_with_the_token_of_its_address(visit, browser, text):
    _, board = visit(host=EVERYWHERE)
    eventually(lambda: "token" not in browser.current_url)
    board.show(detail="News")
    eventually(lambda: text("detail") == "News")
    browser.refresh()
    assert text("detail") == "News"
    assert browser.execute_script("return document.cookie") == ""  # no script may read it
    assert browser.get_log("browser") == []
    browser.delete_all_cookies()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PICTURES)
def test_nothing_sticks_out_sideways_and_nothing_is_wrong(visit, browser, text, name, width):
    visit(PICTURES[name], width)
    eventually(lambda: text("live") != "")
    across = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    assert browser.execute_script(across) == [width, width]
    for box in browser.find_elements(By.CSS_SELECTOR, ".sites td, .sites th, svg text, .settings"):
        assert box.rect["x"] >= -1
        if width < 900:
            assert box.rect["x"] + box.rect["width"] <= width
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("state", ["waiting", "training", "finished", "failed", "stopped"])
def test_texts_can_be_read(visit, browser, scheme, state):
    visit(STATUS.but(state=state), scheme=scheme)
    contrast, where = browser.execute_script(MIN_CONTRAST)
    assert contrast >= 4.5, where
    context = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert context == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 28)"}[scheme]


def test_the_keyboard_reaches_everything_in_order_and_leaves_again(visit, browser):
    visit()
    order = []
    while "metrics" not in order and len(order) < 30:
        browser.switch_to.active_element.send_keys(Keys.TAB)
        order.append(browser.execute_script(FOCUSED))
        outline = "return getComputedStyle(document.activeElement).outlineStyle"
        assert browser.execute_script(outline) == "solid"
    assert order == [
        "#main", "#sites", "#incidents", "#accuracy", "#protection", "#settings", "sites-heading",
        "SUMMARY", "SUMMARY", "status", "metrics",
    ]  # fmt: skip
    browser.switch_to.active_element.send_keys(Keys.TAB)
    assert browser.execute_script(FOCUSED) in ("BODY", "#main")  # out, or around


def test_the_skip_link_is_seen_and_skips(visit, browser):
    visit()
    link = browser.find_element(By.CSS_SELECTOR, ".skip")
    assert link.rect["x"] < 0
    browser.switch_to.active_element.send_keys(Keys.TAB)
    assert browser.switch_to.active_element == link
    assert link.rect["x"] >= 0
    link.send_keys(Keys.ENTER)
    browser.switch_to.active_element.send_keys(Keys.TAB)
    assert browser.execute_script(FOCUSED) == "sites-heading"


@pytest.mark.parametrize("width", [320, 1280])
def test_one_can_find_ones_way_without_seeing(visit, browser, width):
    visit(width=width)
    for landmark in ("header", "nav", "main", "footer", "h1", "progress", "[aria-live]"):
        assert len(browser.find_elements(By.CSS_SELECTOR, landmark)) == 1, landmark
    live = browser.find_element(By.CSS_SELECTOR, "[aria-live]")
    assert (live.get_attribute("aria-live"), live.text) == ("polite", "Training")
    drawing = browser.find_element(By.TAG_NAME, "svg")
    assert drawing.accessible_name.startswith("RMSE on held-out ratings by round")
    table = browser.find_element(By.CSS_SELECTOR, ".sites")
    assert table.aria_role == "table"  # also where its rows look like cards
    rows = table.find_elements(By.CSS_SELECTOR, "tbody tr")
    assert {row.aria_role for row in rows} == {"row"}
    assert rows[0].find_element(By.TAG_NAME, "th").aria_role == "rowheader"
    assert browser.find_element(By.TAG_NAME, "progress").accessible_name == "Rounds finished"


def test_without_scripts_the_page_shows_a_picture_and_says_how_to_get_the_next(visit, browser):
    _, board = visit(scripts=False)
    assert browser.find_element(By.ID, "detail").text == STATUS.detail
    assert browser.find_elements(By.CSS_SELECTOR, "svg .curve")
    assert not browser.find_element(By.ID, "live").is_displayed()
    board.show(detail="News")
    browser.find_element(By.LINK_TEXT, "load it again").click()
    eventually(lambda: browser.find_element(By.ID, "detail").text == "News")


def test_paper_is_white(visit, browser):
    visit(scheme="dark")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        context = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert context == "rgb(255, 255, 255)"
        assert not browser.find_element(By.TAG_NAME, "nav").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
