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
from fedmmf.reports import Run, lead, read_run, write_report
from fedmmf.reports import words as said
from fedmmf.reports.list_scores import ListScores, RankingScores, RecommendedList
from fedmmf.reports.results import DemoResult

EMPTY = {"baselines": [], "history": [], "j": None, "tradeoff": [], "cost": None}
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


@pytest.fixture(autouse=True)
def _one_moment(monkeypatch):
    """Pages are compared, so that all of them are written at once."""
    monkeypatch.setattr("fedmmf.reports.lead.written", lambda: "2026-01-02 03:05 UTC by fedmmf 0.2")


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
    assert sections(samples.audit()) == ["attacks", "privacy", "tradeoff", *always]
    assert sections(samples.demo()) == ["runs", *trained, "recommendations", *always]
    both = Run.of(samples.train(), samples.audit())
    assert sections(both) == ["attacks", *trained, *always]
    assert sections(samples.train(rmse=None, **EMPTY)) == ["privacy", "traffic", *always]


def test_a_flag_in_a_verdict_stays_on_one_line(page_of):
    """A browser breaks a line after a hyphen, and `--` alone says nothing."""
    page = page_of(samples.audit())
    assert '<li><span class="flag">--sharing</span> strict: nobody' in page.source
    assert "--sharing strict: nobody" in page.text


@pytest.mark.parametrize("missing", EMPTY)
def test_any_optional_part_may_be_missing(page_of, missing):
    run = samples.train().to_json_dict()
    del run[missing]
    assert "0.9213" in page_of(run).text


def test_parts_may_be_empty(page_of):
    run = samples.train(**EMPTY | {"history": [None, None]})
    assert 'id="learning"' not in page_of(run).source


def test_results_and_their_json_make_the_same_page(page_of):
    for result in (samples.train(), samples.demo(), samples.audit()):
        assert page_of(result).source == page_of(result.to_json_dict()).source
    train, audit = samples.train(), samples.audit()
    both = {"train": train.to_json_dict(), "audit": audit.to_json_dict()}
    assert page_of(both).source == page_of(Run.of(train, audit)).source


@pytest.mark.parametrize("name", ["train.json", "demo.json", "audit.json", ""])
def test_files_of_version_0_1_make_a_page_that_says_what_they_do_not_tell(page_of, name):
    text = page_of(read_run(samples.OLD / name)).text
    assert "fedmmf of the run" in text
    assert said.UNTOLD in text
    assert said.SIMULATED in text


@pytest.mark.parametrize(
    "run",
    [
        samples.train(data=HOSTILE, version=HOSTILE, mask=HOSTILE, settings={HOSTILE: HOSTILE}),
        samples.train(baselines=[{"name": HOSTILE, "rmse": 1.0}]),
        samples.train(protection=[HOSTILE]),
        samples.audit(sentences=[HOSTILE]),
        samples.audit(groups={HOSTILE: [samples.attack(HOSTILE, 0.5)]}),
        DemoResult(
            runs=[samples.train()],
            recommended=RecommendedList(
                user=HOSTILE,
                model=HOSTILE,
                recommendations=[{"item_id": HOSTILE, "title": HOSTILE, "prediction": 1.0}],
            ),
        ),
    ],
    ids=["train", "baseline", "protection", "sentence", "attack", "demo"],
)
def test_nothing_in_a_run_becomes_markup(page_of, run):
    page = page_of(run)
    assert "<script>alert" not in page.source
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.source
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert len(scripts) == page.source.count("<script") <= 2


def test_no_address_is_fetched(page_of):
    page = page_of(Run.of(samples.train(), samples.audit()))
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
    page = page_of(Run.of(samples.train(), samples.audit()))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = {a["href"][1:] for t, a in page.tags if t == "a"}
    assert targets <= set(ids)
    named = {name for _, a in page.tags for name in a.get("aria-labelledby", "").split()}
    assert named <= set(ids)


def test_the_words_say_what_secure_means_and_what_is_made_up(page_of):
    text = page_of(samples.train()).text
    assert "A small J protects nobody by itself." in text
    assert said.SYNTHETIC in text
    assert said.SYNTHETIC not in page_of(samples.train(synthetic=False)).text


def test_j_is_shown_beside_the_users_own_variance_where_it_is_known(page_of):
    text = page_of(samples.train()).text
    assert "variance of the user's own ratings is 0.8765 in the mean" in text
    assert "rank correlation of J with that variance is 0.9543 (Spearman)" in text
    bare = samples.train().privacy.model_copy(
        update={"mean_relative_j": None, "j_follows_variance": None}
    )
    assert "variance" not in " ".join(said.of_privacy(bare))


def test_what_is_hidden_is_said_in_the_runs_own_words(page_of):
    text = page_of(samples.train()).text
    assert samples.HIDDEN in text
    assert said.UNTOLD not in text
    assert said.UNTOLD in page_of(samples.train(protection=())).text


@pytest.mark.parametrize("result", [samples.train(), samples.audit()], ids=["train", "audit"])
def test_a_simulation_says_so_before_any_figure_and_a_real_run_does_not(page_of, result):
    page = page_of(result)
    assert "simulated" in before_figures(page)
    assert said.SIMULATED in page.text
    assert said.IN_ONE_PROCESS not in page.text
    page = page_of(result.model_copy(update={"simulated": False}))
    assert "real parties" in before_figures(page)
    assert said.IN_ONE_PROCESS in page.text
    assert "simulation" not in page.text


def before_figures(page):
    """What a reader sees before the verdict and the first tile."""
    return page.source.split("<body")[1].split('<p class="verdict">')[0].split("<dt>")[0]


def tiles_of(page):
    """Labels, figures and notes, in the order of the page."""
    found = re.findall(r"<dt>(.*?)</dt><dd class=\"figure\">(.*?)</dd>", page.source)
    return {label: figure.replace("\N{NO-BREAK SPACE}", " ") for label, figure in found}


@pytest.mark.parametrize("result", [samples.train(), samples.demo(), samples.audit()], ids=type)
def test_how_real_it_was_is_in_the_first_line_then_comes_the_verdict(page_of, result):
    page = page_of(result)
    lines = [line.strip() for line in page.text.splitlines() if line.strip()]
    title, skip, first, name = lines[:4]
    verdict = " ".join(lines[4:6])  # a light stands before its sentence
    assert title.startswith("simulated, ")
    assert skip == "Skip to the content"
    assert first.startswith("simulated")
    assert name == "fedmmf report: sample"
    parts = result.runs if isinstance(result, DemoResult) else [result]
    leading = [getattr(part.verdict, "sentence", part.verdict) for part in parts]
    assert any(sentence in verdict for sentence in leading)
    assert 3 <= len(tiles_of(page)) <= 6


def test_a_real_training_beside_a_simulated_audit_is_told_apart(page_of):
    both = Run.of(samples.train(simulated=False), samples.audit())
    first = page_of(both).source.split('<p class="kind">')[1].split("</p>")[0]
    assert "<strong>training real parties</strong>" in first
    assert "<strong>audit simulated</strong>" in first


def test_the_first_screen_is_for_deciders(page_of):
    """Light, sentence, rule, what to change and what was not tested: before any figure."""
    audit = samples.audit()
    page = page_of(Run.of(samples.train(), audit))
    first, figures = page.source.split('<dl class="tiles">')
    light = f'<p class="light {audit.verdict.light}">'
    said = (audit.verdict.sentence, audit.verdict.rule, "For a better light", "Not tested")
    places = [first.index(text) for text in (light, *said)]
    assert places == sorted(places)
    words = re.sub("<[^>]+>", "", first)
    for line in (*audit.verdict.changes, *audit.verdict.not_tested):
        assert line.replace("'", "&#39;") in words
    assert "inversion" not in first
    assert "inversion" in figures


def test_an_older_audits_verdict_and_figures_lead(page_of):
    verdict = "Some attack finds at least 90% of the ratings of 264 of 264 users."
    verdicts = {"in the clear": verdict, "in sums": "Hidden."}
    page = page_of(Run.of(samples.train(), samples.audit(verdicts=verdicts, verdict=None)))
    assert f'<p class="verdict">{verdict}</p>' in page.source
    assert next(iter(tiles_of(page).items())) == ("users recovered", "264 of 264")
    assert page.text.count(verdict) == 1


def test_an_audit_of_a_strict_run_leads_with_sums():
    settings = samples.audit().settings | {"sharing": "strict"}
    sums = [samples.attack("grouping", 0.37), samples.attack("membership", 0.46)]
    sums = {"sums of strict mode": sums}
    strict = samples.audit(settings=settings, messages=sums, verdict=None)
    assert lead.verdict(Run.of(strict)) == "Hidden. Some attack finds them."
    first, second, *others = lead.tiles(Run.of(strict))
    assert (first.label, first.value) == ("gained from sums", "+0.1000")
    assert "by membership, the best of 2 attacks" in first.note
    assert second.label == "recovered, had they shared in the clear"
    assert second.value == "264 of 264"
    assert not {"users recovered", "found by the best attack"} & {tile.label for tile in others}


def test_tiles_have_the_best_attack_and_the_best_mean():
    best = {tile.label: tile for tile in lead.tiles(Run.of(samples.audit()))}
    assert best["found by the best attack"].value == "100\N{NO-BREAK SPACE}%"
    assert "inversion" in best["found by the best attack"].note
    accuracy = {tile.label: tile for tile in lead.tiles(Run.of(samples.train()))}
    assert accuracy["RMSE on test ratings"].note == "item mean: 1.0243"


def test_rounds_stand_alone_where_nothing_was_held_out():
    notes = {
        best: next(tile.note for tile in lead.tiles(run) if tile.label == "rounds")
        for best, run in ((best, Run.of(samples.train(best_round=best))) for best in (80, None))
    }
    assert notes == {80: "round 80 was the best", None: ""}


def test_tiles_begin_with_what_protects_least_or_most(page_of, spent):
    strict = {"sharing": "strict", "aggregation": "secure"}
    noisy = samples.train(settings=strict | {"aggregation": "dp"}, dp=spent)
    assert list(tiles_of(page_of(noisy)))[:2] == ["epsilon, a whole user", "delta"]
    clear = samples.train().privacy.model_copy(update={"users_in_clear": 264})
    adaptive = page_of(samples.train(privacy=clear))
    assert next(iter(tiles_of(adaptive).items())) == ("users in the clear", "264 of 600")
    assert "264 of 600 users (J &lt;= 0.05) would send their updates" in adaptive.source
    assert tiles_of(page_of(samples.train(settings=strict)))["RMSE on test ratings"] == "0.9213"


def test_the_slider_begins_at_the_runs_own_threshold(page_of):
    source = page_of(samples.train()).source
    points = json.loads(re.search(r'id="threshold-points">(.*?)</script>', source)[1])
    start = int(re.search(r'type="range" .*? value="(\d+)"', source)[1])
    assert points[start]["value"] == "0.05"


def test_the_page_tells_date_command_and_versions(page_of):
    page = page_of(samples.train())
    foot = page.source.split("<footer>")[1]
    assert "Run of 2026-01-02 03:04 UTC. fedmmf 0.2.0, Python 3.11.7, numpy 2.0.0." in foot
    assert "<code>fedmmf train --data &#39;my ratings.csv&#39;</code>" in foot
    assert "Page written 2026-01-02 03:05 UTC by fedmmf 0.2." in foot
    old = page_of(read_run(samples.OLD / "train.json")).source
    assert "does not tell when it was made" in old
    assert "<pre" not in old


def test_lists_are_judged_beside_the_most_popular_items(page_of):
    popular = ListScores(ndcg_at_10=0.2, recall_at_20=0.1, hit_rate_at_10=None)
    ranking = RankingScores(
        ndcg_at_10=0.3,
        recall_at_20=0.15,
        hit_rate_at_10=0.5,
        n_users=1234,
        relevant_from=4.0,
        popularity=popular,
    )
    text = page_of(samples.train(rmse=None, mae=None, ranking=ranking)).text
    assert "Lists of 1,234 users are judged by the relevant items, rated 4 or more" in text
    assert re.search(r"nDCG@10\s*0\.3000\s*0\.2000", text)
    assert re.search(r"hit rate@10\s*0\.5000\s*-", text)
    lonely = ranking.model_copy(update={"popularity": None})
    assert re.search(r"nDCG@10\s*0\.3000\s*-", page_of(samples.train(ranking=lonely)).text)
    both = page_of(samples.train(ranking=ranking))  # lists were asked for: they come first
    assert list(tiles_of(both))[1:3] == ["nDCG@10 of lists", "RMSE on test ratings"]
    assert 0 < both.source.index('id="lists"') < both.source.index('id="accuracy"')
    assert "These lists are of predicted ratings" in both.text
    ranked = samples.train(rmse=None, ranking=ranking, settings={"objective": "ranking"})
    of_ranked = page_of(ranked).text
    assert "predicted ratings" not in of_ranked
    assert "were kept for the test; nobody trained on them" in of_ranked
    poor = ranking.model_copy(update={"ndcg_at_10": 0.1})
    assert (
        "These lists are worse than the most popular items"
        in page_of(samples.train(ranking=poor)).text
    )


def test_attacks_on_nobody_are_left_out(page_of):
    text = page_of(samples.audit()).text
    assert "264 of 264 users who would share in the clear are recovered by inversion" in text
    assert "users who would share in the clear" in text
    assert "no server gets these" not in text


def test_an_audit_of_another_run_is_called_so(page_of):
    audit = samples.audit()
    ours = samples.train(settings=audit.settings)
    strange = "The audit is of another run"
    assert strange not in page_of(Run.of(ours, audit)).text
    other = samples.train(settings=audit.settings | {"mask": "fm"})
    text = page_of(Run.of(other, audit)).text
    assert f"{strange} than the rest of this page: mask." in text


def test_a_worse_run_than_a_simple_prediction_is_called_so(page_of):
    text = page_of(samples.train(rmse=1.2)).text
    assert "above that of the best simple prediction, item mean" in text


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
            for context in ("paper", "panel"):
                assert contrast(colours[ink], colours[context]) >= 4.5


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

    done = report(
        "-", "--out", "page.html", "--json", text=json.dumps(samples.train().to_json_dict())
    )
    sections = ["accuracy", "learning", "privacy", "tradeoff", "traffic", "protection", "settings"]
    assert json.loads(done.stdout) == {"out": "page.html", "sections": sections}
    assert (tmp_path / "page.html").is_file()
    text = json.dumps(samples.train().to_json_dict())
    done = report("-", "--out", "page.html", "--json", text=text)
    sections = ["accuracy", "learning", "privacy", "tradeoff", "traffic", "protection", "settings"]
    assert json.loads(done.stdout) == {"out": "page.html", "sections": sections}
    assert (tmp_path / "page.html").is_file()
    done = report("-", "--out", "page.html", "--json", text=HOSTILE)
    assert (done.returncode, done.stdout) == (1, "")
    assert "standard input is not JSON" in done.stderr
    assert "Traceback" not in done.stderr


def test_epsilon_is_on_the_page_of_a_run_that_has_one_and_on_no_other(page_of, spent):
    chosen = {"sharing": "strict", "aggregation": "dp", "dp_epsilon": 8.0, "dp_clip": 1.0}
    text = page_of(samples.train(settings=chosen, dp=spent)).text
    for words in ("epsilon of the rounds used7.5", "dp_epsilon8.0", "rounds paid for30"):
        assert words in " ".join(text.split())
    assert "Noise is added by all parties together." in text
    assert spent["not_covered"] in text
    without = page_of(samples.train(settings=chosen | {"aggregation": "secure"})).text
    assert "epsilon" not in without
    assert "dp_clip" not in without


def test_sums_are_called_simulated_unless_parties_were_real(page_of):
    chosen = {"sharing": "strict", "aggregation": "secure"}
    text = page_of(samples.train(settings=chosen)).text
    assert "strict, secure (simulated: no message was sent)" in text
    text = page_of(samples.train(settings=chosen, simulated=False)).text
    assert "strict, secure (real parties)" in text
