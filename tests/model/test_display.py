"""What notebooks show."""

import dataclasses
import re
from html.parser import HTMLParser

from rich.console import Console
from rich.progress import Progress

from fedmmf import FedMMF
from fedmmf.progress import bars


class Cells(HTMLParser):
    """The texts of a table, and every tag and attribute."""

    def __init__(self, text):
        super().__init__()
        self.texts, self.tags = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


def test_a_model_shows_its_settings_and_what_it_was_fitted_on(small):
    model = FedMMF(mask="mean", factors=2, rounds=2)
    assert "not fitted" in model._repr_html_()
    cells = Cells(model.fit(small)._repr_html_())
    assert cells.texts[0] == "FedMMF, fitted"
    rows = dict(zip(cells.texts[1::2], cells.texts[2::2], strict=True))
    assert rows["settings"] == "FedMMF(mask='mean', factors=2, rounds=2)"
    assert (rows["users"], rows["items"], rows["rounds"]) == ("60", "90", "2")
    assert "1,800 synthetic ratings" in rows["data"]
    assert rows["sums"] == "secure, simulated"


def test_names_of_data_are_no_markup(small):
    bad = dataclasses.replace(small, name="<script>alert(1)</script>")
    shown = FedMMF(mask="mean", factors=2, rounds=1).fit(bad)._repr_html_()
    assert {tag for tag, _ in Cells(shown).tags} == {"table", "caption", "tbody", "tr", "th", "td"}


def test_results_show_single_figures_in_any_theme(small):
    train, test = small.split(0.3)
    result = FedMMF(mask="mean", factors=2, rounds=2).fit(train).summary(test)
    text = result._repr_html_()
    cells = Cells(text)
    rows = dict(zip(cells.texts[1::2], cells.texts[2::2], strict=True))
    assert rows["rmse"] == f"{result.rmse:.4g}"
    assert rows["n_users"] == "60"
    assert "privacy" in rows["more in"]
    assert "color" not in text
    assert "background" not in text
    assert len(text) < 6000
    assert re.search(r"<td[^>]*>1\.?\d*</td>", text)


def test_bars_are_drawn_on_terminals_and_in_notebooks(monkeypatch):
    off = []

    class Watched(Progress):
        def __init__(self, *columns, disable, **more):
            off.append(disable)
            super().__init__(*columns, disable=True, **more)

    monkeypatch.setattr("rich.progress.Progress", Watched)
    for kind in ({"force_jupyter": True}, {"force_terminal": True}, {"force_terminal": False}):
        with bars("fit", Console(**kind)) as report:
            report("rounds", 1, 2)
    assert off == [False, False, True]
