"""The documentation as a site: it builds without a warning, reads well, and asks no other host."""

import functools
import http.server
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from itertools import cycle
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

import fedmmf

ROOT = Path(__file__).parents[1]
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
AXE = Path(os.environ.get("AXE_CORE") or ROOT / "node_modules" / "axe-core" / "axe.min.js")
PAGES = sorted(
    {path.stem for docs in ("docs", "experiments/docs") for path in (ROOT / docs).glob("*.md")}
    | {f"spec/{path.stem}".replace("README", "index") for path in (ROOT / "spec").glob("*.md")}
    | {"notebook", "CONTRIBUTING", "CHANGELOG", "SECURITY"}
)
# What a browser fetches by itself; links that somebody has to follow are not in it.
FETCHED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=[\"']?(https?:)?//")


def missing(*modules):
    return [name for name in modules if importlib.util.find_spec(name) is None]


pytestmark = pytest.mark.skipif(
    bool(missing("mkdocs", "material", "mkdocstrings")),
    reason="needs mkdocs-material and mkdocstrings: pip install 'fedmmf[dev]'",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of a site that was built with warnings as errors."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_every_page_is_built_and_in_the_navigation(site):
    front = (site / "index.html").read_text()
    for page in PAGES:
        assert (site / f"{page}.html").is_file()
        assert f'href="{page}.html"' in front


def test_nothing_is_fetched_from_another_host(site):
    assert FETCHED.search('<link rel="stylesheet" href="https://fonts.example/a.css">')
    for path in [*site.glob("*.html"), *site.glob("spec/*.html"), *site.rglob("*.svg")]:
        assert not FETCHED.search(path.read_text()), path.name
    for path in (site / "assets").rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//|@import", path.read_text()), path.name


def test_lists_tables_and_code_are_not_left_as_plain_text(site):
    """What GitHub takes for a list, a table or a block, python-markdown has to take for one too."""
    for path in site.glob("*.html"):
        text = re.sub(r"<(pre|code)\b.*?</\1>", "", path.read_text(), flags=re.DOTALL)
        assert not re.search(r"<p>[^<]*(?:<(?!/p>)[^<]*)*\n(?:[-*] |\d+\. |\|)", text), path.name
        assert "```" not in text, path.name


def test_the_api_has_every_public_name(site):
    text = (site / "api.html").read_text()
    for name in fedmmf.__all__:
        assert re.search(rf'id="fedmmf\.[\w.]*\b{name}"', text), name


# In a browser


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


@pytest.fixture(scope="module")
def address(site):
    handler = functools.partial(Silent, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument("--hide-scrollbars")
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('browser')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(DRIVER))
    yield driver
    driver.quit()


def look_at(browser, width, scheme):
    """Show the page at this width, to somebody who likes it light or dark."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    liked = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": liked})


def asked_for(browser):
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = (e["params"] for e in events if e["method"] == "Network.requestWillBeSent")
    return [params["request"]["url"] for params in sent]


VIEWS = [(390, "light"), (390, "dark"), (1280, "dark"), (1280, "light")]
COLOURS = {"light": "default", "dark": "slate"}
SETTLED = """
const [width, colours] = arguments, page = document.documentElement;
return page.scrollWidth <= width && document.body.dataset.mdColorScheme === colours;
"""


def settle(browser, page, width, scheme):
    """Show the page so, and wait until it fits; what moves needs a moment."""
    look_at(browser, width, scheme)
    WebDriverWait(browser, 60, 0.02).until(
        lambda it: it.execute_script(SETTLED, width, COLOURS[scheme]),
        f"{page} does not fit into {width} px, {scheme}",
    )


AXE_RUN = """
const [within, done] = arguments;
axe.run(within, {resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa", "wcag21aa"]})
  .then(found => done(found.violations.map(one => one.id + ": " + one.nodes[0].target[0])));
"""


def test_every_page_is_quiet_narrow_enough_and_asks_nobody_else(browser, address):
    for log in ("browser", "performance"):
        browser.get_log(log)  # forget earlier pages
    for number, page in enumerate(PAGES):
        browser.get(f"{address}/{page}.html")
        for width, scheme in VIEWS[:: 1 - number % 2 * 2]:  # to and fro: changing takes a moment
            settle(browser, page, width, scheme)
        assert browser.get_log("browser") == [], page
    asked = [url for url in asked_for(browser) if url.startswith(("http", "ws"))]
    assert len(asked) > len(PAGES)
    assert [url for url in asked if not url.startswith(address)] == []


def test_axe_finds_nothing(browser, address):
    """Each page in one of the looks, in turns; all of the front page, and the text of others."""
    if not AXE.is_file():
        pytest.skip("needs axe-core: make axe, or AXE_CORE=.../axe.min.js")
    found = {}
    for page, look in zip(PAGES, cycle(VIEWS)):  # endless, so of no one length
        browser.get(f"{address}/{page}.html")
        settle(browser, page, *look)
        browser.execute_script(AXE.read_text())
        within = "html" if page == "index" else "article"
        found[page] = browser.execute_async_script(AXE_RUN, within)
    assert {page: wrong for page, wrong in found.items() if wrong} == {}
