"""Charts: ticks are round, marks are where the values are, and a table says the same."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import HOSTILE

from fedmmf.reports.charts import (
    LEFT,
    RIGHT,
    Bar,
    Series,
    ValueAxis,
    bars,
    histogram,
    line,
    places,
)
from fedmmf.reports.results import Histogram
from fedmmf.reports.svg import percent, round_ticks


def marks(chart):
    return [part for part in chart.drawing.iter() if "mark" in part.get("class", "").split()]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 1, [0, 0.5, 1]),
        (0, 1.126, [0, 0.5, 1, 1.5]),
        (0.92, 1.02, [0.9, 0.95, 1, 1.05]),
        (0, 65000, [0, 20000, 40000, 60000, 80000]),
        (0, 0, [-0.5, 0, 0.5]),
        (3, 3, [2.6, 2.8, 3, 3.2, 3.4]),
    ],
)
def test_ticks_are_round_and_enclose_the_values(low, high, ticks):
    assert round_ticks(low, high) == pytest.approx(ticks)


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_few_and_evenly_spaced(low, width):
    ticks = round_ticks(low, low + width)
    steps = [after - before for before, after in pairwise(ticks)]
    assert 2 <= len(ticks) <= 7
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-3)
    assert ticks[0] <= low + 1e-6 * width
    assert ticks[-1] >= low + width * (1 - 1e-6)
    mantissa = steps[0] / 10.0 ** math.floor(math.log10(steps[0] * 1.001))
    assert mantissa == pytest.approx(min((1, 2, 5, 10), key=lambda m: abs(m - mantissa)), rel=1e-3)


def test_bars_are_as_long_as_their_values():
    chart = bars("b", "title", [Bar("a", 2.0), Bar("b", 4.0, "other")], ValueAxis("unit"))
    short, long = (float(mark.get("width")) for mark in marks(chart))
    assert long == pytest.approx(2 * short)
    assert chart.table.rows == [["a", "2"], ["b", "4"]]
    looks = [mark.get("class") for mark in marks(chart)]
    assert looks == ["mark ours", "mark other"]


def test_bars_of_nothing_start_at_the_left():
    (mark,) = marks(bars("b", "title", [Bar("a", 0.0)], ValueAxis("unit")))
    assert float(mark.get("x")) == 4


@pytest.mark.parametrize("values", [(0.82, 0.88), (0.9125, 1.1269), (5.0, 9.9)])
def test_close_values_begin_where_their_difference_can_be_seen(values):
    rows = [Bar(str(value), value) for value in values]
    chart = bars("b", "title", rows, ValueAxis("RMSE", from_zero=False))
    short, long = (float(mark.get("width")) for mark in marks(chart))
    assert 0.1 * long < short < 0.8 * long
    ticks = [part.text for part in chart.drawing.iter("text") if part.get("class") is None]
    begin = min(map(float, ticks))
    label = next(part.text for part in chart.drawing.iter("text") if part.get("class") == "label")
    assert label == f"RMSE; bars begin at {begin:g}, not at 0"


@pytest.mark.parametrize("values", [(0.2, 0.9), (0.9, 0.9), (0.0, 1.0), (0.9,)])
def test_other_values_begin_at_0_and_nothing_else_is_said(values):
    rows = [Bar("a", value) for value in values]
    chart = bars("b", "title", rows, ValueAxis("RMSE", from_zero=False))
    texts = [part.text for part in chart.drawing.iter("text")]
    assert "RMSE" in texts
    assert "0" in texts


def test_looks_of_attacks_differ_in_shape_and_in_words():
    rows = [Bar(look, 0.5, look, reference=0.4) for look in ("above", "level", "below")]
    chart = bars("b", "title", rows, ValueAxis("success"))
    symbols = [part for part in chart.drawing.iter() if "symbol" in part.get("class", "")]
    assert len({part.get("d") for part in symbols}) == 3
    assert [row[-1] for row in chart.table.rows] == ["more", "no difference found", "less"]
    described = next(chart.drawing.iter("desc")).text
    assert "level: 0.5, no difference found; public knowledge: 0.4" in described


def test_a_long_name_is_cut_in_the_drawing_and_whole_in_the_table():
    name = "a name that is far too long for one line of a small chart"
    chart = bars("b", "title", [Bar(name, 1.0)], ValueAxis("unit"))
    (shown,) = (part.text for part in chart.drawing.iter() if part.get("class") == "name")
    assert shown.strip() == "a name that is far too long for one…"
    assert chart.table.rows[0][0] == name


def test_a_bar_shows_its_interval_and_what_to_compare_with():
    rows = [Bar("attack", 0.5, interval=(0.4, 0.6), reference=0.3), Bar("other", 0.1)]
    chart = bars("b", "title", rows, ValueAxis("success", percent))
    nbsp = "\N{NO-BREAK SPACE}"
    cells = [[f"50{nbsp}%", f"40{nbsp}% to 60{nbsp}%", f"30{nbsp}%"], [f"10{nbsp}%", "", ""]]
    assert [row[1:] for row in chart.table.rows] == cells
    looks = [part.get("class") for part in chart.drawing.iter()]
    assert looks.count("interval") == looks.count("reference") == 1


def test_a_histogram_fills_the_bins_up_to_the_limit():
    found = Histogram(edges=[0.0, 0.1, 0.2, 0.3], counts=[5, 10, 0])
    chart = histogram("h", "title", found, "J", limit=0.15)
    assert [mark.get("class") for mark in marks(chart)] == ["mark ours", "mark other", "mark other"]
    heights = [float(mark.get("height")) for mark in marks(chart)]
    assert heights[1] == pytest.approx(2 * heights[0])
    assert heights[2] == 0
    assert chart.table.rows[1] == ["0.1 to 0.2", "10"]


def test_a_line_has_a_gap_where_a_value_is_missing():
    curve = Series("error", [4.0, 3.0, None, 1.0, 0.0])
    chart = line("l", "title", [0, 1, 2, 3, 4], curve, "round", marked=1)
    (path,) = marks(chart)
    assert path.get("d").count("M") == 2
    assert path.get("d").count("L") == 2
    assert chart.table.rows[2] == ["2", ""]
    assert places([0, 1, 2, 3, 4], curve)[2][1] is None


def test_places_are_where_the_line_is_drawn():
    curve = Series("error", [4.0, 3.0, 0.0])
    chart = line("l", "title", [0, 1, 2], curve, "round", marked=1)
    found = places([0, 1, 2], curve)
    assert [found[0][0], found[2][0]] == [LEFT, RIGHT]
    assert marks(chart)[0].get("d") == "M" + "L".join(f"{x},{y}" for x, y in found)
    (dot,) = (part for part in chart.drawing.iter() if part.get("class") == "dot")
    assert (float(dot.get("cx")), float(dot.get("cy"))) == found[1]


def test_every_drawing_has_a_text_alternative():
    chart = line("l", "the title", [1, 2], Series("error", [0.5, 0.25]), "round")
    texts = {part.get("id"): part.text for part in chart.drawing if part.get("id")}
    assert chart.drawing.get("role") == "img"
    assert chart.drawing.get("aria-labelledby").split() == list(texts)
    assert texts == {"l-title": "the title", "l-desc": "error: from 0.5 at 1 to 0.25 at 2"}


def test_names_are_text_and_never_markup():
    chart = bars(HOSTILE, HOSTILE, [Bar(HOSTILE, 1.0)], ValueAxis(HOSTILE, lambda value: HOSTILE))
    quoted = '"&lt;script&gt;alert(1)&lt;/script&gt;-title"'
    assert "<script" not in chart.__html__()
    assert f"<title id={quoted}>&lt;script&gt;" in chart.__html__()
