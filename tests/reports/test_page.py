"""The page as a file: which sections, honest words, nothing injected, nothing fetched."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import resources

import pytest
import samples
from samples import HOSTILE

from fedmmf.errors import DataError
from fedmmf.reports import write_report

OPTIONAL = ("baselines", "history", "j", "tradeoff", "cost", "traffic", "seconds", "rounds")
PACKAGE = resources.files("fedmmf.reports")


class Page(HTMLParser):
    """Tags with their attributes, and the text outside of styles and scripts."""

    def __init__(self, source):
        super().__init__()
        self.source, self.tags, self.text = source, [], ""
        self.feed(source)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] not in ("style", "script"):
            self.text += data


@pytest.fixture
def page_of(tmp_path):
    def page_of(run):
        write_report(run, tmp_path / "report.html")
        return Page((tmp_path / "report.html").read_text(encoding="utf-8"))

    return page_of


def test_a_section_is_there_where_its_data_are(tmp_path):
    def sections(run):
        return write_report(run, tmp_path / "report.html")

    always = ["protection", "settings"]
    trained = ["accuracy", "learning", "privacy", "tradeoff", "traffic"]
    assert sections(samples.train()) == trained + always
    assert sections(samples.audit()) == ["attacks", *always]
    assert sections(samples.demo()) == ["runs", *trained, "recommendations", *always]
    both = {"train": samples.train(), "audit": samples.audit()}
    assert sections(both) == [*trained[:4], "attacks", "traffic", *always]
    bare = {key: value for key, value in samples.train(rmse=None).items() if key not in OPTIONAL}
    assert sections(bare) == ["privacy", *always]


@pytest.mark.parametrize("missing", OPTIONAL)
def test_any_optional_part_may_be_missing(page_of, missing):
    run = samples.train()
    del run[missing]
    assert "0.9213" in page_of(run).text


def test_parts_may_be_empty(page_of):
    run = samples.train(cost=None, history=[None, None], tradeoff=[], baselines=[], j=None)
    assert 'id="learning"' not in page_of(run).source


@pytest.mark.parametrize(
    "run",
    [
        samples.train(data=HOSTILE, version=HOSTILE, mask=HOSTILE, settings={HOSTILE: HOSTILE}),
        samples.train(baselines=[{"name": HOSTILE, "rmse": 1.0}]),
        samples.audit() | {"sentences": [HOSTILE]},
        samples.audit() | {"groups": {HOSTILE: [samples.attack(HOSTILE, 0.5)]}},
        {
            "runs": [samples.train()],
            "recommended": {
                "user": HOSTILE,
                "model": HOSTILE,
                "recommendations": [{"item_id": HOSTILE, "title": HOSTILE, "prediction": 1.0}],
            },
        },
    ],
    ids=["train", "baseline", "sentence", "attack", "demo"],
)
def test_nothing_in_a_run_becomes_markup(page_of, run):
    page = page_of(run)
    assert "<script>alert" not in page.source
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.source
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert len(scripts) == page.source.count("<script") <= 2


def test_no_address_is_fetched(page_of):
    page = page_of({"train": samples.train(), "audit": samples.audit()})
    links = [
        value
        for _, attributes in page.tags
        for name, value in attributes.items()
        if name in ("src", "href", "action", "data", "poster", "srcset")
    ]
    assert links
    assert all(link.startswith("#") or link == "data:," for link in links)
    assert not re.search(r"https?:|@import|url\(", page.source)
    policy = next(a["content"] for t, a in page.tags if "http-equiv" in a and t == "meta")
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_links_lead_to_sections_and_ids_are_unique(page_of):
    page = page_of({"train": samples.train(), "audit": samples.audit()})
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {a["href"][1:] for t, a in page.tags if t == "a"}
    assert targets <= set(ids)
    named = {name for _, a in page.tags for name in a.get("aria-labelledby", "").split()}
    assert named <= set(ids)


def test_the_words_say_what_secure_means_and_what_is_made_up(page_of):
    text = page_of(samples.train()).text
    assert "A small J protects nobody by itself." in text
    assert "obfuscation, not protection" in text
    assert "The ratings are synthetic" in text
    assert "The ratings are synthetic" not in page_of(samples.train(synthetic=False)).text


@pytest.mark.parametrize(
    ("sharing", "aggregation", "said", "unsaid"),
    [
        ("strict", "secure", "It sees no single update", "in the clear. This is"),
        ("strict", "dp", "differential privacy", "It sees no single update"),
        ("strict", "homomorphic-ckks", "must not collude with the server", "differential privacy"),
        ("adaptive", "secure", "who is in which group", "Sharing is strict"),
        ("plain", "secure", "the server sees the update of every user", "secure aggregation"),
    ],
)
def test_what_is_hidden_depends_on_how_updates_are_shared(
    page_of, sharing, aggregation, said, unsaid
):
    settings = {"sharing": sharing, "aggregation": aggregation}
    text = page_of(samples.train(settings=settings)).text
    assert said in text
    assert unsaid not in text
    collected = "The server collects the masked ratings themselves"
    assert collected not in text
    assert collected in page_of(samples.train(settings=settings | {"collect_masked": True})).text


def test_attacks_on_nobody_are_left_out(page_of):
    text = page_of(samples.audit()).text
    assert "264 of 264 users who would share in the clear are recovered by inversion" in text
    assert "users who would share in the clear" in text
    assert "no server gets these" not in text


def test_an_audit_of_another_run_is_called_so(page_of):
    audit = samples.audit()
    ours = samples.train(settings=audit["settings"])
    strange = "The audit is of another run"
    assert strange not in page_of({"train": ours, "audit": audit}).text
    other = samples.train(settings=audit["settings"] | {"mask": "fm"})
    assert (
        f"{strange} than the rest of this page: mask."
        in page_of({"train": other, "audit": audit}).text
    )


def test_a_worse_run_than_a_simple_prediction_is_called_so(page_of):
    text = page_of(samples.train(rmse=1.2)).text
    assert "above that of the best simple prediction, mask alone" in text


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(DataError, match="cannot write"):
        write_report(samples.train(), tmp_path / "nowhere" / "report.html")


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    """WCAG 2.2, contrast ratio."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_have_contrast_in_every_scheme():
    schemes = re.findall(r":root \{(.*?)\}", PACKAGE.joinpath("page.css").read_text(), re.DOTALL)
    assert len(schemes) == 3  # light, dark, paper
    for scheme in schemes:
        colours = dict(re.findall(r"--(\w+): (#\w{6})", scheme))
        for ink in ("ink", "muted", "ours", "alert"):
            for ground in ("paper", "panel"):
                assert contrast(colours[ink], colours[ground]) >= 4.5


def test_the_script_is_small():
    assert len(PACKAGE.joinpath("slider.js").read_text().splitlines()) < 100


def test_the_command_writes_the_file_and_says_what_is_in_it(tmp_path):
    def report(*arguments, text=""):
        return subprocess.run(
            [sys.executable, "-m", "fedmmf", "report", *arguments],
            input=text,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )

    done = report("-", "--out", "page.html", "--json", text=json.dumps(samples.train()))
    sections = ["accuracy", "learning", "privacy", "tradeoff", "traffic", "protection", "settings"]
    assert json.loads(done.stdout) == {"out": "page.html", "sections": sections}
    assert (tmp_path / "page.html").is_file()
    done = report("-", "--out", "page.html", "--json", text=HOSTILE)
    assert (done.returncode, done.stdout) == (1, "")
    assert "standard input is not JSON" in done.stderr
    assert "Traceback" not in done.stderr
