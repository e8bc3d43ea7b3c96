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
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
AXE = Path(os.environ.get("AXE_CORE") or ROOT / "node_modules" / "axe-core" / "axe.min.js")
PAGES = sorted(
    {path.stem for path in (ROOT / "docs").glob("*.md")}
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
    for path in [*site.glob("*.html"), *site.rglob("*.svg")]:
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
    import fedmmf

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
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

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


LOOKS = [(width, scheme) for width in (390, 1280) for scheme in ("light", "dark")]


@pytest.fixture(params=LOOKS, ids=lambda look: f"{look[0]}-{look[1]}")
def look(request, browser):
    """A browser of one width, whose owner likes it light or dark."""
    width, scheme = request.param
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    liked = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": liked})
    for log in ("browser", "performance"):
        browser.get_log(log)  # forget earlier pages
    return browser, width, scheme


def asked_for(browser):
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = (e["params"] for e in events if e["method"] == "Network.requestWillBeSent")
    return [params["request"]["url"] for params in sent]


def test_every_page_is_quiet_narrow_enough_and_alone(look, address):
    browser, width, scheme = look
    for page in PAGES:
        browser.get(f"{address}/{page}.html")
        assert browser.get_log("browser") == [], page
        across = browser.execute_script("return document.documentElement.scrollWidth")
        assert across <= width, page
        shown = browser.execute_script("return document.body.dataset.mdColorScheme")
        assert shown == {"light": "default", "dark": "slate"}[scheme]
    asked = asked_for(browser)
    assert len(asked) > len(PAGES)
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []


def test_axe_finds_nothing(look, address):
    if not AXE.is_file():
        pytest.skip("needs axe-core: npm install axe-core, or AXE_CORE=.../axe.min.js")
    browser, _, _ = look
    found = []
    for page in PAGES:
        browser.get(f"{address}/{page}.html")
        browser.execute_script(AXE.read_text())
        result = browser.execute_async_script(
            "const done = arguments[0]; axe.run({resultTypes: ['violations']}).then(done)"
        )
        for broken in result["violations"]:
            where = [node["target"][0] for node in broken["nodes"][:3]]
            found.append(f"{page}: {broken['id']} at {where}")
    assert found == []
