"""Probes of the printed tables: what each table's command runs, on a small set, in seconds.

Of a table of times a probe is what is timed: it gives factors or bytes, since seconds are never the
same twice. `tables` says which probe belongs to which table.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass, replace
from functools import cache

import numpy as np

from fedmmf.attacks import attacks_on
from fedmmf.audit import expose
from fedmmf.data import Ratings, load
from fedmmf.data.synthetic import synthetic
from fedmmf.model import FedMMF
from fedmmf.secagg import SessionSize
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf.simulation import train as train_all
from fedmmf_experiments.bench import engine_beside, first_answer, ranking, sessions, training
from fedmmf_experiments.bench.rankers import RANKERS
from fedmmf_experiments.bookshop import bookshop, core
from fedmmf_experiments.paper import (
    attack_figures,
    efficiency,
    epsilon,
    factorial,
    many_rounds,
    models,
    newcomer_lists,
    newcomers,
    solver_table,
    strengths,
    strict_sums,
    table1,
    vb_rounds,
)
from fedmmf_experiments.paper.splitting import Splitting
from fedmmf_experiments.private import curve, users
from fedmmf_experiments.private.curve import DpPlan
from fedmmf_experiments.private.lists import LIST_ROWS
from fedmmf_experiments.private.rows import rows_called
from fedmmf_experiments.result_cache import ResultCache

_OMITTED = {"seconds", "seconds_over_ours", "fit_seconds", "party_s", "server_s", "settings"}
_LR = Settings(mask="lr")
_PLAIN = Settings(mask="mean", sharing="plain", factors=4, rounds=3, held_out=0.0)


def numbers(found: object) -> Iterator[float]:
    """All numbers in a result, in its order, without times and settings."""
    if is_dataclass(found) and not isinstance(found, type):
        found = asdict(found)
    if isinstance(found, Mapping):
        found = [value for name, value in found.items() if name not in _OMITTED]
    if isinstance(found, (int, float, np.number)):
        yield float(found)
    elif isinstance(found, (list, tuple)):
        for value in found:
            yield from numbers(value)


@cache
def data_digits(name: str) -> tuple[float, ...]:
    """Sizes and sums of a public set, as it is read."""
    ratings = load(name)
    known = [about.values for about in (ratings.features, ratings.profiles) if about is not None]
    sums = [float(np.abs(values).sum(dtype=np.float64)) for values in (ratings.values, *known)]
    return float(ratings.n_users), float(ratings.n_items), *sums


@cache
def small() -> Ratings:
    """Ratings that train in a moment; a sixth of the users comes last."""
    made = synthetic(60, 90, 1800, seed=3)
    late = made.user_codes % 6 == 0
    order = np.random.default_rng(0).permutation(len(made))
    return replace(made, timestamps=order + len(made) * late)


@cache
def few() -> Ratings:
    """Fewer people, for attacks that take long for many."""
    return synthetic(26, 40, 520, seed=3)


def quiet(*told: object) -> None:
    """Ignore progress."""


def of_table1() -> object:
    """Every row, with the settings that are tuned for each set."""
    jobs = [table1.Job(data, row, 0, 0.2) for data in ("ml-100k", "lastfm") for row in models.ROWS]
    return table1.run_table(jobs, lambda name: small(), ResultCache())


def of_solver() -> object:
    """Every row of ML-100K, on one split."""
    problem = replace(solver_table.PROBLEMS["ml-100k"], ratings=small)
    return [solver_table.run_row(problem, row, 1, 0, quiet) for row in problem.rows]


def of_factorial(way: str) -> object:
    """Every combination of the table, with four factors, on one split."""
    cells = factorial.cells(("none", "mean", "lr"), factorial.SOLVERS, [4])
    rows = factorial.Factorial(small(), Splitting(way, 1)).rows(cells, quiet)
    return [row.rmse for row in rows]


@cache
def of_newcomers(order: str) -> object:
    """Both tables: with nothing or ten ratings known, and by the number of known ones."""
    situations = newcomers.situations_of(small(), order, 1, 0)
    return list(newcomers.newcomer_rows(situations, 0, quiet))


def of_newcomer_lists() -> object:
    """Lists of newcomers of one fold, beside the most popular items."""
    found = newcomers.Situation.folds(small(), 1)
    return [row.by_known for row in newcomer_lists.list_rows(found, 0, quiet)]


def of_training() -> object:
    """Our rows; the peers are not always installed."""
    tools = [tool for tool in training.all_tools(training.OURS) if tool.name == "fedmmf"]
    return training.compare(tools, *small().split(0.1, seed=0), repeats=1)


def of_lists() -> object:
    """Lists of a model of ratings, and the most popular items."""
    train, test = small().split(0.2, seed=0)
    model = FedMMF(mask="mean", solver="vb").fit(train)
    return model.evaluate(test, top=10, relevant_from=4)["ranking"].to_json_dict()


def of_ranking() -> object:
    """Our rows and our rankers; those of other packages are not always installed."""
    settings = Settings(mask="mean", solver="vb", objective="ranking", factors=4)
    rows = ranking.RankingRun([small().split(0.2, seed=0)], settings).rows()
    ours = {ranker.name for ranker in RANKERS}
    return [row.splits[0].metrics for row in rows if row.name in ours or "fedmmf" in row.name]


def of_first_answer() -> object:
    """Our row and popularity on ratings, on implicit feedback and on sparse ratings; no ALS."""
    sparse = core(bookshop(600, 900, 9000), minimum=3)
    some = (small(), small().as_implicit(), sparse)
    rows = [first_answer.first_answer(one, 1, 0.2, 0, quiet) for one in some]
    return [(row.n_ratings, row.ours, row.popularity) for row in rows]


def of_rounds(sharing: str) -> object:
    """Items' factors after three rounds of each solver."""
    plans = [_PLAIN.changed(sharing=sharing, solver=solver) for solver in ("sgd", "vb")]
    runs = [train_all(small(), plan).members[0] for plan in plans]
    return [float(np.abs(run.broadcast.item_rows).sum(dtype=np.float64)) for run in runs]


def of_card() -> object:
    """The case that is packed for a card, trained by `numba`."""
    settings = Settings(solver="vb", factors=4, ensemble=2, rounds=5)
    train, test = small().split(0.1, seed=0)
    case = engine_beside.case_of(train, test, settings)
    return engine_beside.trained_beside(train, settings, case)


def of_audit() -> object:
    """Every attack on masked ratings, as `fedmmf audit` makes them."""
    run = prepare(small(), Settings(mask="fm", sharing="adaptive"))
    view, attacks = expose(run), attacks_on("masked ratings", "fm")
    results = [attack.run(view, run.training.values) for attack in attacks]
    return [(result.mean, result.baseline_mean) for result in results]


def of_attack_figures() -> object:
    """Figures 2a and 2b."""
    return attack_figures.run(small(), Settings(mask="fm"), quiet)


def of_strengths() -> object:
    """Every mask at one strength."""
    plan = strengths.StrengthPlan(strengths=(30.0,), n_users=5)
    return strengths.run(few(), plan, ResultCache(), quiet).rows


def of_first_sums(solver: str) -> object:
    """Attacks on the sums of one round."""
    if solver == "sgd":
        return strict_sums.run(few(), _LR, [], quiet).rows
    return vb_rounds.run(few(), _LR.changed(solver="vb"), [], [1], quiet).rows


def of_many_sums(solver: str) -> object:
    """Attacks on the sums of some rounds."""
    if solver == "sgd":
        return many_rounds.run(small(), _LR, [12], [10], quiet).rows
    return vb_rounds.run(few(), _LR.changed(solver="vb"), [12], [8], quiet).rows


def of_efficiency() -> object:
    """Bytes of a secure round among real parties, and who would share in the clear."""
    settings = Settings(mask="lr", held_out=0.0, factors=4)
    secure = efficiency.measured("secure", prepare(small(), settings), 1)
    return [secure, efficiency.secure_share(small(), settings, 5)]


def of_session() -> object:
    """Bytes of a round of secure sums, unsigned and signed."""
    return [sessions.measure(SessionSize(12, 11, 50, active=signed)) for signed in (False, True)]


def of_dp() -> object:
    """Rows of ours and of a peer at one epsilon, on one split, and what is printed without any."""
    rows = rows_called(["vb-features", "vb", "sgd-mean", "item-means", "local-lr", "vb-no-noise"])
    plan = DpPlan([8.0], rows, splits=1, delta=1e-3)
    return [row.mean for row in curve.run(small(), plan, ResultCache(), quiet).rows]


def of_dp_lists() -> object:
    """Rows of lists at one epsilon, on one split."""
    rows = rows_called(["vb-features", "vb", "mask", "popularity"], LIST_ROWS)
    plan = DpPlan([8.0], rows, splits=1, delta=1e-3, metric=curve.NDCG)
    return [row.mean for row in curve.run(small(), plan, ResultCache(), quiet).rows]


def of_dp_users() -> object:
    """One number of users."""
    return users.run(users.UsersPlan([300], [1.0], items=60), ResultCache(), quiet).rows


def of_epsilon() -> object:
    """The whole table."""
    return epsilon.epsilon_table()
