"""Masks, solvers and ways to sum give the figures of version 0.1; `figures.json` says which."""

import json
from pathlib import Path

import pytest

from fedmmf import FedMMF

FIGURES = json.loads((Path(__file__).parent / "figures.json").read_text())["figures"]
EXTRAS = {"dp": "dp_accounting", "homomorphic-ckks": "tenseal", "homomorphic-paillier": "phe"}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_what_it_was(request, name):
    known = FIGURES[name]
    extra = EXTRAS.get(known["settings"].get("aggregation"))
    if extra is not None:
        pytest.importorskip(extra, reason="the extras `dp` and `he`")
    fixture = {"ml-100k": "ml_100k", "small": "small"}[known["data"]]
    train, test = request.getfixturevalue(fixture).split(test=0.2, seed=0)
    found = FedMMF(**known["settings"]).fit(train, real=known["real"]).evaluate(test)
    assert found["rmse"] == pytest.approx(known["rmse"], abs=1e-6)
    assert found["mae"] == pytest.approx(known["mae"], abs=1e-6)
