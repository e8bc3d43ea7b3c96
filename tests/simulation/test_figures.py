"""Masks, solvers and aggregation schemes give the figures in `figures.json`."""

import json
from pathlib import Path

import pytest

from fedmmf import FedMMF
from fedmmf.aggregation.rare_items import raters_needed

FIGURES = json.loads((Path(__file__).parent / "figures.json").read_text())["figures"]
EXTRAS = {"dp": "dp_accounting", "homomorphic-ckks": "tenseal", "homomorphic-paillier": "phe"}


def settings_today(settings):
    """The same items are left out as in version 0.1.

    There `min_raters` was how many raters an item needed to be summed, by default 3. Today it is
    how many have to stay, and a few more are needed: 2 have to stay where 3 are needed, 3 where 5.
    """
    needed = settings.get("min_raters", 3)
    (stay,) = (number for number in range(1, needed + 1) if raters_needed(number) == needed)
    return {**settings, "min_raters": stay}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_what_it_was(request, name):
    known = FIGURES[name]
    extra = EXTRAS.get(known["settings"].get("aggregation"))
    if extra is not None:
        pytest.importorskip(extra, reason="the extras `dp` and `he`")
    fixture = {"ml-100k": "ml_100k", "small": "small"}[known["data"]]
    train, test = request.getfixturevalue(fixture).split(test=0.2, seed=0)
    model = FedMMF(**settings_today(known["settings"]))
    found = model.fit(train, real=known["real"]).evaluate(test)
    assert found["rmse"] == pytest.approx(known["rmse"], abs=1e-6)
    assert found["mae"] == pytest.approx(known["mae"], abs=1e-6)
