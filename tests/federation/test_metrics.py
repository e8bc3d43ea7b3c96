"""The metrics, read by a strict parser of Prometheus' text format 0.0.4."""

import re
from dataclasses import dataclass, field

import pytest
from asking import ask
from pictures import EMPTY, HOSTILE, HOSTILE_STATUS, STATUS

from fedmmf.federation.page.metrics import metrics

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

    assert (alone("round"), alone("rounds"), alone("attempts_total")) == (24, 60, 25)
    assert (alone("seconds_per_round"), alone("seconds_left")) == (16.2, 583)
    assert alone("held_out_rmse") == pytest.approx(STATUS.held_out[-1])
    assert (alone("evaluation_rmse"), alone("evaluation_ratings")) == (0.94217, 19_812)
    assert alone("updated_timestamp_seconds") > 1.7e9
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


def test_counters_are_called_total_and_gauges_are_not():
    for name, family in parsed(metrics(STATUS)).items():
        assert (family.type == "counter") == name.endswith("_total"), name


def test_names_of_strangers_are_escaped():
    found = parsed(metrics(HOSTILE_STATUS))
    assert (("site", HOSTILE),) in found["fedmmf_site_here"].samples
    assert (("federation", HOSTILE), ("version", HOSTILE)) in found["fedmmf_info"].samples


def test_what_is_not_known_is_left_out():
    found = parsed(metrics(EMPTY))
    assert found["fedmmf_round"].samples == {(): 0}
    assert not {"fedmmf_seconds_left", "fedmmf_held_out_rmse", "fedmmf_evaluation_rmse",
                "fedmmf_site_here", "fedmmf_updated_timestamp_seconds"} & set(found)  # fmt: skip


def test_numbers_that_are_not_finite_can_be_read():
    text = metrics(STATUS.but(held_out=(float("nan"),), seconds_left=float("inf")))
    assert "fedmmf_held_out_rmse NaN\n" in text
    assert parsed(text)["fedmmf_seconds_left"].samples == {(): float("inf")}
