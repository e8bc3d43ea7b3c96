"""Effects of a mask's strength: ratings found by attacks, J, nonlinearity and accuracy.

Masked ratings of some users are attacked as `fedmmf audit` does it: by every attack of the registry
that finds ratings, with other people's ratings as public knowledge. What counts is the best attack
for each user, which a server cannot always tell; the side of caution. Masks are fitted to all
ratings for the attacks, J and bending, and to a training part for errors.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fedmmf import __version__, rng
from fedmmf.arrays import Array
from fedmmf.attacks import AttackResult, rating_attacks
from fedmmf.attacks.contract import prior_share
from fedmmf.attacks.view import Exposed
from fedmmf.audit import expose
from fedmmf.audit.verdicts import RECOVERED, recovery_verdict
from fedmmf.data import Ratings
from fedmmf.masks.feature_maps import design_of
from fedmmf.masks.lines import lines_of
from fedmmf.settings import Settings
from fedmmf.simulation import Prepared, prepare
from fedmmf_experiments.paper.drawing import Columns, markdown, new_figure, write_results
from fedmmf_experiments.paper.models import Row, mask_scores, run_row
from fedmmf_experiments.result_cache import ResultCache

MASKS = ("fm", "nn", "lr")
STRENGTHS = (3.0, 10.0, 30.0, 60.0, 120.0)
N_USERS = 200
TEST = 0.2
EXPOSED, NOT_SHOWN = "exposed", "not shown to be exposed"
MARKERS = "os^Dv"  # distinguishable without colours
COLUMNS: Columns = {
    "mask": lambda row: row.mask,
    "strength": lambda row: f"{row.strength:g}",
    "found": lambda row: f"{row.found:.3f}",
    "95 %": lambda row: "{:.3f}-{:.3f}".format(*row.interval),
    "public": lambda row: f"{row.public:.3f}",
    "recovered": lambda row: f"{row.recovered:.1%}",
    "verdict": lambda row: row.verdict,
    "J": lambda row: f"{row.j:.4f}",
    "J out of fold": lambda row: f"{row.j_out_of_fold:.4f}",
    "bent": lambda row: f"{row.bent:.3f}",
    "private": lambda row: f"{row.bent_private:.3f}",
    "LocalX RMSE": lambda row: f"{row.rmse_local:.4f}",
    "FedMMF RMSE": lambda row: f"{row.rmse_federated:.4f}",
}
"""How each column is shown, by title."""


@dataclass(frozen=True, eq=False)
class BentShares:
    """For each user, the share of the variance of f_u over the catalogue that is not linear."""

    whole: Array  # (n_users,) with what users have in common
    private: Array  # (n_users,) without


def bent_shares(run: Prepared) -> BentShares:
    """Compute the shares for a run's masks, over all items."""
    design = design_of(run.features.expanded, sees_features=True)  # (n_items, m)
    lines = lines_of(run.masks, run.features.seen, design, run.engine.mask_runner())
    common = np.zeros(design.shape[1])
    common[: len(run.masks.population.line)] = run.masks.population.line
    plain = design_of(run.features.content, sees_features=True)
    rest = design - plain @ np.linalg.lstsq(plain, design)[0]  # what no line has (n_items, m)
    return BentShares(*(_share(weights, design, rest) for weights in (lines, lines - common)))


def _share(lines: Array, design: Array, rest: Array) -> Array:
    """Variance of the residuals divided by that of all values. (n_users,)."""
    whole = np.var(lines @ design.T, axis=1)
    return np.asarray(np.var(lines @ rest.T, axis=1) / np.maximum(whole, 1e-12))


@dataclass(frozen=True)
class StrengthPlan:
    """The masks, strengths and users of the experiment."""

    masks: Sequence[str] = MASKS  # names of families
    strengths: Sequence[float] = STRENGTHS  # of their regularisation
    n_users: int = N_USERS  # how many users are attacked, at most; drawn at random
    seed: int = 0  # of the draw, the split and the training

    def settings(self) -> list[Settings]:
        """Settings of each mask at each strength, in the table's order, checked beforehand."""
        pairs = product(dict.fromkeys(self.masks), sorted(set(self.strengths)))
        return [
            Settings.checked(mask=mask, mask_strength=strength, seed=self.seed)
            for mask, strength in pairs
        ]


@dataclass(frozen=True)
class StrengthRow:
    """One mask at one strength."""

    mask: str  # name of the family
    strength: float  # of its regularisation
    found: float  # share of ratings that the best attack finds exactly, mean over attacked users
    interval: list[float]  # 95 % interval of it, by bootstrap over users
    public: float  # the same share for public knowledge alone
    attack: str  # the single attack that finds most
    recovered: float  # share of attacked users of whose ratings at least `RECOVERED` are found
    verdict: str  # `EXPOSED` if there is any such user, else `NOT_SHOWN`
    sentence: str  # the audit's words for it
    j: float  # in sample, mean over all users, as are the others below
    j_out_of_fold: float  # on ratings that the models had not seen
    bent: float  # share of the mask's variance that is not linear, of the median user
    bent_private: float  # the same without what users have in common
    rmse_local: float  # on test ratings, of LocalX: the mask alone
    rmse_federated: float  # of FedMMF: the federated model, trained by `sgd`


@dataclass(frozen=True)
class StrengthTable:
    """Every mask at every strength, on one data set."""

    data: str
    n_users: int  # attacked
    test: float
    seed: int
    rows: list[StrengthRow]

    def of(self, mask: str) -> list[StrengthRow]:
        """The rows of one mask, by strength."""
        return [row for row in self.rows if row.mask == mask]

    @property
    def masks(self) -> list[str]:
        """Names of the masks, in the order of the rows."""
        return list(dict.fromkeys(row.mask for row in self.rows))


def run(
    ratings: Ratings, plan: StrengthPlan, cache: ResultCache, progress: Callable[[int, int], None]
) -> StrengthTable:
    """Try every mask at every strength, unless it is cached; `progress` is told (done, of)."""
    users = draw_users(ratings, plan.n_users, plan.seed)
    every = plan.settings()
    rows: list[StrengthRow] = []
    for settings in every:
        progress(len(rows), len(every))
        rows.append(_cached_row(ratings, users, settings, cache))
    progress(len(rows), len(every))
    return StrengthTable(ratings.name, len(users), TEST, plan.seed, rows)


def draw_users(ratings: Ratings, n_users: int, seed: int) -> Array:
    """Codes of users with ratings, drawn at random, increasing. (n,)."""
    rating = np.flatnonzero(np.diff(ratings.by_user))
    drawn = rng.stream(seed, "strengths").permutation(len(rating))[:n_users]
    return np.asarray(rating[np.sort(drawn)])


def _cached_row(
    ratings: Ratings, users: Array, settings: Settings, cache: ResultCache
) -> StrengthRow:
    key = (ratings.name, settings.mask, f"strength-{settings.mask_strength:g}")
    facts = {
        "version": __version__,
        "ratings": ratings.fingerprint,
        "n_users": len(users),
        "test": TEST,
        "settings": settings.model_dump(),
    }
    return StrengthRow(**cache.once(key, facts, lambda: asdict(row_of(ratings, users, settings))))


def row_of(ratings: Ratings, users: Array, settings: Settings) -> StrengthRow:
    """One mask at one strength; `users` (n,) are attacked."""
    fitted = prepare(ratings, settings.changed(held_out=0.0))
    bent = bent_shares(fitted)
    return StrengthRow(
        mask=settings.mask,
        strength=float(fitted.masks.strengths[0]),
        **attacked(fitted, users),
        j=float(np.nanmean(fitted.masks.j_train)),
        j_out_of_fold=float(np.nanmean(fitted.masks.j_out_of_fold)),
        bent=float(np.median(bent.whole)),
        bent_private=float(np.median(bent.private)),
        **_errors(ratings, settings),
    )


def attacked(fitted: Prepared, users: Array) -> dict[str, Any]:
    """What the attacks find, by the names of a row."""
    everybody = expose(fitted)
    keep = np.isin(everybody.users, users)  # (n_users,)
    view, truth = everybody.only(keep), fitted.training.values[everybody.rows_of(keep)]
    best, attack = best_shares(view, truth)
    public = prior_share(view, truth)
    result = AttackResult("best attack", "", "", "", users, best, public, fitted.settings.seed)
    recovered = float(np.mean(best >= RECOVERED))
    return {
        "found": result.mean,
        "interval": list(result.interval),
        "public": result.baseline_mean,
        "attack": attack,
        "recovered": recovered,
        "verdict": EXPOSED if recovered else NOT_SHOWN,
        "sentence": recovery_verdict(best),
    }


def best_shares(view: Exposed, truth: Array) -> tuple[Array, str]:
    """Success of the best attack on each user (n_users,), and the attack that finds most."""
    attacks = rating_attacks(view.plan.kind)
    found = np.array([attack.success(view, truth) for attack in attacks])  # (n_attacks, n_users)
    return found.max(axis=0), attacks[int(found.mean(axis=1).argmax())].name


def _errors(ratings: Ratings, settings: Settings) -> dict[str, Any]:
    """RMSE on test ratings, by the names of a row."""
    train, test = ratings.split(TEST, seed=settings.seed)
    tuned = {"mask_strength": settings.mask_strength}
    federated = Row("FedMMF", "factorization", settings.mask, "sgd")
    return {
        "rmse_local": mask_scores(prepare(train, settings.changed(held_out=0.0)), test)["rmse"],
        "rmse_federated": run_row(federated, train, test, tuned, settings.seed).rmse,
    }


def write(report: StrengthTable, out: Path) -> None:
    """The table as JSON and Markdown, and drawn."""
    write_results(
        out, "strengths", report, markdown(COLUMNS, report.rows), {"strengths": draw(report)}
    )


def draw(report: StrengthTable) -> Any:
    """What is found, and RMSE, against strength; one marker per mask."""
    figure, (found, errors) = new_figure(n_panels=2)
    for number, mask in enumerate(report.masks):
        # Open markers that grow: of lines that coincide, every mask is still seen.
        size = {"markersize": 5 + 3 * number, "fillstyle": "none"}
        look = {"marker": MARKERS[number % len(MARKERS)], "color": f"C{number}", **size}
        _draw_found(found, report.of(mask), look)
        _draw_errors(errors, report.of(mask), look)
    first = report.of(report.masks[0])  # what is public is the same for all masks
    strengths, public = [row.strength for row in first], [row.public for row in first]
    found.plot(strengths, public, color="black", linestyle=":", label="public knowledge alone")
    for panel in (found, errors):
        panel.set(xscale="log", xlabel="strength of the mask")
        panel.set_xticks(strengths, [f"{strength:g}" for strength in strengths])
        panel.set_xticks([], minor=True)
        # Below the panel: inside it would hide lines.
        panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=len(report.masks))
    found.set(ylim=(0.0, 1.05), ylabel="share of ratings found exactly, 95 %")
    found.set_title(f"{report.data}, {report.n_users:,} users attacked")
    errors.set(ylabel="test RMSE", title=f"{report.data}, test share {report.test:g}")
    return figure


def _draw_found(panel: Any, rows: list[StrengthRow], look: dict[str, Any]) -> None:
    places, means = [row.strength for row in rows], np.array([row.found for row in rows])
    ends = np.array([row.interval for row in rows]).T  # (2, n_strengths)
    error = np.maximum(np.abs(ends - means), 0.0)
    panel.errorbar(places, means, error, capsize=3, label=rows[0].mask, **look)


def _draw_errors(panel: Any, rows: list[StrengthRow], look: dict[str, Any]) -> None:
    places, mask = [row.strength for row in rows], rows[0].mask
    federated, local = [row.rmse_federated for row in rows], [row.rmse_local for row in rows]
    panel.plot(places, federated, label=f"FedMMF, {mask}", **look)
    panel.plot(places, local, linestyle="--", label=f"LocalX, {mask}", **look)
