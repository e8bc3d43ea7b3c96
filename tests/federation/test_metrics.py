"""The metrics, read by a strict parser of Prometheus' text format 0.0.4."""

import re
from dataclasses import dataclass, field
from datetime import datetime

import pytest
from asking import ask
from pictures import AWAITED, EMPTY, HOSTILE, HOSTILE_STATUS, STATUS, WAITING

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(,|$)')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (-?[0-9.]+(?:e[+-]?[0-9]+)?|NaN|[+-]Inf)")


@dataclass
class Family:
    type: str = ""
    samples: dict = field(default_factory=dict)


def parsed(text):
    """Families by name; anything that the format does not allow fails."""
    assert text.endswith("\n")
    families, current = {}, None
    for line in text[:-1].split("\n"):
        if match := re.fullmatch(rf"# HELP ({NAME}) (\S.*)", line):
            current = match[1]
            assert current not in families, "a family comes once"
            families[current] = Family()
        elif match := re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge)", line):
            assert match[1] == current
            assert not families[current].samples
            families[current].type = match[2]
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert match[1] == current
            assert families[current].type
            labels = labels_of(match[2])
            assert labels not in families[current].samples, "a sample comes once"
            families[current].samples[labels] = float(match[3])
    return families


def labels_of(text):
    found, at = [], 0
    while text and at < len(text):
        match = LABEL.match(text, at)
        assert match, text
        value = re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), match[2])
        found.append((match[1], value))
        at = match.end()
    return tuple(found)


def metrics_of(serve, status):
    page, _ = serve(status)
    return ask(page, "/metrics")[2]


@pytest.mark.parametrize("version", ["x", "1.a.0", "", "1e9", "9" * 5000])
@pytest.mark.parametrize("kind", ["text/plain", "application/openmetrics-text"])
def test_a_version_that_nobody_knows_is_no_mistake_of_ours(serve, caplog, kind, version):
    page, _ = serve(STATUS)
    status, headers, _ = ask(page, "/metrics", headers={"Accept": f"{kind}; version={version}"})
    assert (status, headers["Content-Type"].partition(";")[0] in (kind, "text/plain")) == (
        200,
        True,
    )
    assert not caplog.records


def test_the_parser_is_strict():
    good = '# HELP a b\n# TYPE a gauge\na{x="1"} 2\n'
    assert parsed(good)["a"].samples == {(("x", "1"),): 2.0}
    for bad in (good[:-1], good.replace("gauge", "figure"), good + 'a{x="1"} 2\n', good + "b 1\n",
                good.replace('"1"', '"\\q"'), good.replace(" 2", " None"), "a 1\n"):  # fmt: skip
        with pytest.raises(AssertionError):
            parsed(bad)


def test_the_metrics_are_the_picture(serve):
    page, _ = serve()
    status, headers, body = ask(page, "/metrics")
    assert status == 200
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = parsed(body)

    def alone(name):
        return found[f"fedmmf_{name}"].samples[()]

    rounds = (alone(f"{name}_rounds{end}") for name, end in
              (("finished", "_total"), ("planned", ""), ("begun", "_total")))  # fmt: skip
    assert tuple(rounds) == (24, 60, 25)
    assert (alone("round_duration_seconds"), alone("remaining_seconds")) == (16.2, 583)
    assert (alone("smallest_cohort_parties"), alone("incidents_total")) == (3, 17)
    assert alone("held_out_rmse") == pytest.approx(STATUS.held_out[-1])
    assert (alone("evaluation_rmse"), alone("evaluation_ratings")) == (0.94217, 19_812)
    assert alone("status_timestamp_seconds") > alone("start_timestamp_seconds") > 1.7e9
    states = found["fedmmf_state"].samples
    assert len(states) == 6
    assert {labels for labels, value in states.items() if value} == {(("state", "training"),)}
    for name, wanted in (
        ("here", [1, 1, 0, 0, 0]), ("rounds_total", [23, 24, 11, 0, 0]),
        ("drop_outs_total", [1, 0, 3, 0, 0]), ("users", [1204, 611, 92, 40, 0]),
        ("received_bytes_total", [s.up_bytes for s in STATUS.sites]),
        ("sent_bytes_total", [s.down_bytes for s in STATUS.sites]),
    ):  # fmt: skip
        samples = found[f"fedmmf_site_{name}"].samples
        assert samples == {
            (("site", s.name),): v for s, v in zip(STATUS.sites, wanted, strict=True)
        }
    assert found["fedmmf_site_seen_timestamp_seconds"].samples.keys() == {
        (("site", s.name),) for s in STATUS.sites[:4]
    }
    assert found["fedmmf_site_info"].samples == {
        (("site", "clinic-north"), ("version", "0.2.0")): 1
    }
    assert "fedmmf_site_awaited_timestamp_seconds" not in found


def test_a_silent_site_is_a_metric(serve):
    found = parsed(metrics_of(serve, WAITING))
    assert found["fedmmf_site_awaited_timestamp_seconds"].samples == {
        (("site", "clinic-south"),): datetime.fromisoformat(AWAITED).timestamp()
    }


def test_programs_that_speak_openmetrics_get_it(serve):
    page, _ = serve()
    wanted = {"Accept": "application/openmetrics-text; version=1.0.0"}
    _, headers, body = ask(page, "/metrics", headers=wanted)
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith("# EOF\n")


def test_counters_are_called_total_and_gauges_are_not(serve):
    for name, family in parsed(metrics_of(serve, STATUS)).items():
        assert (family.type == "counter") == name.endswith("_total"), name


def test_names_of_strangers_are_escaped(serve):
    found = parsed(metrics_of(serve, HOSTILE_STATUS))
    assert (("site", HOSTILE),) in found["fedmmf_site_here"].samples
    assert (("federation", HOSTILE), ("version", HOSTILE)) in found["fedmmf_info"].samples


def test_what_is_not_known_is_left_out(serve):
    found = parsed(metrics_of(serve, EMPTY))
    assert found["fedmmf_finished_rounds_total"].samples == {(): 0}
    assert not {"fedmmf_remaining_seconds", "fedmmf_held_out_rmse", "fedmmf_evaluation_rmse",
                "fedmmf_site_here", "fedmmf_status_timestamp_seconds"} & set(found)  # fmt: skip


def test_numbers_that_are_not_finite_can_be_read(serve):
    text = metrics_of(serve, STATUS.but(held_out=(float("nan"),), seconds_left=float("inf")))
    assert "fedmmf_held_out_rmse NaN\n" in text
    assert parsed(text)["fedmmf_remaining_seconds"].samples == {(): float("inf")}
