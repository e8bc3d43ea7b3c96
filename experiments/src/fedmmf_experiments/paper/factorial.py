"""Everything with everything: solver, mask and how it is fitted, and the priors of `vb`.

All rows get the same splits, one run, their default rounds, nothing tuned, and no profiles; rows
differ in what their columns say, and in that sgd holds a twentieth of the ratings out for early
stopping. Differences are paired over splits: against the user mean, fitted alone and jointly, and
against no mask, with the same solver and priors.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fedmmf import __version__
from fedmmf.data import Ratings
from fedmmf.model import FedMMF
from fedmmf.settings import Settings
from fedmmf_experiments.paired import PairedDifference, paired_difference
from fedmmf_experiments.paper.drawing import Columns, markdown
from fedmmf_experiments.paper.splitting import Part, Splitting
from fedmmf_experiments.result_cache import ResultCache

MASKS = ("none", "mean", "lr", "fm", "nn")
SOLVERS = ("sgd", "vb")
NO_CACHE = ResultCache()
Tell = Callable[[str, int], None]
"""Called with the name of a row, and how many of its splits are done."""


@dataclass(frozen=True)
class Cell:
    """One combination of solver, mask, fit and priors."""

    solver: str
    mask: str
    fit: str  # alone, joint; of no mask: alone
    item_prior: bool  # whether item factors depend on item features
    implicit_prior: str
    factors: int

    @property
    def name(self) -> str:
        """Name of the combination, in one line."""
        priors = f"item prior {'on' if self.item_prior else 'off'}, implicit {self.implicit_prior}"
        return f"{self.solver}, {self.mask}, {self.fit}, {priors}, k={self.factors}"

    @property
    def uses_features(self) -> bool:
        """Whether it sees any item feature."""
        return self.item_prior or self.mask not in ("none", "mean")

    def settings(self, seed: int) -> dict[str, Any]:
        """Return the settings of `FedMMF` for this combination."""
        found = {"solver": self.solver, "mask": self.mask, "factors": self.factors, "seed": seed}
        if self.solver == "sgd":
            return found
        priors = {"item_prior": self.item_prior, "implicit_prior": self.implicit_prior}
        fit = {} if self.mask == "none" else {"mask_fit": self.fit}
        return found | priors | fit | {"profile_prior": False}

    def like(self, mask: str, fit: str) -> "Cell":
        """Return the same combination with another mask."""
        return replace(self, mask=mask, fit=fit)


def cells(masks: Sequence[str], solvers: Sequence[str], factors: Sequence[int]) -> list[Cell]:
    """All combinations; sgd has neither priors nor joint masks."""
    found = []
    for k in factors:
        if "sgd" in solvers:
            found += [Cell("sgd", mask, "alone", False, "none", k) for mask in masks]
        if "vb" in solvers:
            found += [
                Cell("vb", mask, fit, item_prior, implicit, k)
                for item_prior in (True, False)
                for implicit in ("both", "none")
                for mask in masks
                for fit in (("alone",) if mask == "none" else ("alone", "joint"))
            ]
    return found


@dataclass(frozen=True)
class FactorialRow:
    """Results of a combination on every split."""

    cell: Cell
    rmse: tuple[float, ...]
    seconds: float  # of a split
    over_mean: PairedDifference | None  # RMSE less that of the user mean, alone; None: the same row
    over_joint: PairedDifference | None  # less that of the user mean, jointly
    over_none: PairedDifference | None

    @property
    def mean(self) -> float:
        """Mean RMSE over all splits."""
        return float(np.mean(self.rmse))

    def to_json_dict(self) -> dict[str, Any]:
        """Return the row for JSON, with the mean and the settings."""
        about = {"name": self.cell.name, "mean": round(self.mean, 5)}
        return about | asdict(self) | {"settings": self.cell.settings(0)}


_BESIDE = (("mean", "alone"), ("mean", "joint"), ("none", "alone"))


@dataclass(frozen=True)
class Factorial:
    """The experiment: its combinations and splits."""

    ratings: Ratings
    splitting: Splitting
    cache: ResultCache = NO_CACHE

    def rows(self, wanted: Sequence[Cell], tell: Tell) -> Iterator[FactorialRow]:
        """Run every combination on every split."""
        found = {cell: self._errors(cell, tell) for cell in wanted}
        for cell, (errors, seconds) in found.items():
            beside = [self._difference(cell, cell.like(*other), found) for other in _BESIDE]
            yield FactorialRow(cell, errors, seconds, *beside)

    def _difference(
        self, cell: Cell, other: Cell, found: Mapping[Cell, tuple[tuple[float, ...], float]]
    ) -> PairedDifference | None:
        if other == cell or other not in found:
            return None
        return paired_difference(found[cell][0], found[other][0], self.splitting.shared)

    def _errors(self, cell: Cell, tell: Tell) -> tuple[tuple[float, ...], float]:
        """RMSE split by split, and seconds of a split."""
        found = []
        for number, part in enumerate(self.splitting.parts(self.ratings), start=1):
            settings = Settings.checked(**cell.settings(part.seed)).model_dump()
            data = {"ratings": self.ratings.fingerprint}
            facts = {"version": __version__, "settings": settings, **data}
            key = (self.ratings.name, cell.name, part.name)
            found.append(self.cache.once(key, facts, partial(_one_split, cell, part)))
            tell(cell.name, number)
        errors = tuple(one["rmse"] for one in found)
        return errors, round(float(np.mean([one["seconds"] for one in found])), 2)


def _one_split(cell: Cell, part: Part) -> dict[str, Any]:
    train, test = part.make()
    began = time.perf_counter()
    model = FedMMF(**cell.settings(part.seed)).fit(train)
    seconds = time.perf_counter() - began
    return {"rmse": round(model.evaluate(test)["rmse"], 6), "seconds": round(seconds, 2)}


def _shown(difference: PairedDifference | None) -> str:
    return "" if difference is None else str(difference)


COLUMNS: Columns = {
    "solver": lambda row: row.cell.solver,
    "k": lambda row: str(row.cell.factors),
    "mask": lambda row: row.cell.mask,
    "fit": lambda row: "" if row.cell.mask == "none" else row.cell.fit,
    "item prior": lambda row: "on" if row.cell.item_prior else "off",
    "implicit": lambda row: row.cell.implicit_prior,
    "RMSE": lambda row: f"{row.mean:.4f}",
    "less mean, alone": lambda row: _shown(row.over_mean),
    "less mean, joint": lambda row: _shown(row.over_joint),
    "less none": lambda row: _shown(row.over_none),
}
factorial_markdown = partial(markdown, COLUMNS)
