"""Whatever a server broadcasts, and whatever one user rated: integers move by the clip at most.

A party's answer before its noise is a vector of whole numbers. Of two sites that differ in one
user, the vectors differ by `clip` at most if the user is absent from one of them, and by twice that
if the user is another; what the other users add is the same. So every release of a run has the
sensitivity that its noise is made for, whatever was sent before it.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from fedmmf.aggregation.contract import round_sizes
from fedmmf.aggregation.dp import guarantee as dp_guarantee
from fedmmf.aggregation.dp import releases
from fedmmf.aggregation.vector import codec_of
from fedmmf.data.rated_items import RatedItems
from fedmmf.data.synthetic import synthetic
from fedmmf.engines import ENGINES
from fedmmf.errors import WireError
from fedmmf.federation.local import Holdings, make_silos
from fedmmf.settings import Settings
from fedmmf.simulation import prepare
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import Broadcast
from fedmmf.solvers.vb.private import PrivateShape, plan
from fedmmf.wire import Adopt, Adopted, Joined, Round, name_of, parcel, read

pytest.importorskip("dp_accounting", reason="dp-accounting is of the extra `dp`")

N_USERS, N_ITEMS, USER = 5, 12, 2
CLIP, ROUNDS = 0.7, 6
KINDS = {
    "vb": {"mask": "none"},
    "vb lr": {"mask": "lr"},
    "lists": {"mask": "lr", "objective": "ranking"},
    "sgd": {"solver": "sgd", "step": "sum", "mask": "mean"},
}
# Sizes of numbers: nothing, subnormal, tiny, usual, large, and the largest of float32.
SIZES = (0.0, 1e-42, 1e-30, 1e-6, 0.1, 1.0, 30.0, 1e6, 1e15, 1e30, 3.4e38)


@pytest.fixture(scope="module")
def runs():
    """A run of each kind, on a tiny set with features."""
    ratings = synthetic(N_USERS, N_ITEMS, 40, min_per_user=3, seed=5)
    base = {"aggregation": "dp", "factors": 3, "dp_clip": CLIP, "rounds": ROUNDS}
    return {
        name: prepare(ratings, Settings(**{**base, **changes})) for name, changes in KINDS.items()
    }


def numbers(draws, shape, sizes):
    """Numbers of every size among some, of either sign, and some of them alike."""
    found = draws.choice(sizes, shape) * draws.choice([-1.0, 1.0], shape)
    found *= draws.choice([1.0, draws.uniform()], shape)
    return found if draws.random() < 0.7 else np.broadcast_to(found[..., :1], shape).copy()


def some_sizes(draws):
    """The sizes of one block: usual ones, all, or one alone."""
    one = draws.choice(SIZES)
    return ([0.1, 1.0], SIZES, [one], [one, 1.0])[draws.integers(4)]


def hostile(draws, shape, honest):
    """A broadcast that a party reads: honest or not, block by block."""
    rows, parameters = honest.item_rows.astype(np.float64), honest.parameters.copy()
    if not isinstance(shape, PrivateShape):
        rows = numbers(draws, rows.shape, some_sizes(draws))
        _fill_plan(draws, parameters)
        return Broadcast(honest.rank, parameters, rows.astype(np.float32))
    for values, blocks in (
        (rows, shape.blocks["item_row"]),
        (parameters, shape.blocks["parameters"]),
    ):
        for part in blocks.split(values).values():
            if draws.random() < 0.6:
                part[...] = numbers(draws, part.shape, some_sizes(draws))
    _make_readable(draws, shape, rows, parameters)
    return Broadcast(honest.rank, parameters, rows.astype(np.float32))


def _fill_plan(draws, parameters):
    """Numbers of a plan of `sgd` that a party reads."""
    for place, largest in ((1, 1e6), (2, 1e6), (5, 9e8)):
        if draws.random() < 0.5:
            parameters[place] = min(draws.choice(SIZES), largest)
    parameters[1] = max(parameters[1], 1e-42)
    parameters[0], parameters[4] = draws.integers(3), draws.integers(2)
    users = parameters[6:]
    users[:] = np.clip(numbers(draws, users.shape, some_sizes(draws)), -1e6, 1e6)
    users[len(users) // 2 :] = np.maximum(np.abs(users[len(users) // 2 :]), 1e-42)


def _make_readable(draws, shape, rows, parameters):
    """What a party refuses at once is within its limits, and often at their ends."""
    told, columns = (
        shape.blocks["parameters"].split(parameters),
        shape.blocks["item_row"].split(rows),
    )
    stages = [n for n, name in enumerate(plan.STAGES) if name != "means" or not shape.ranks]
    told["stage"][...] = draws.choice(stages)
    told["n_active"][...] = draws.integers(shape.rank)
    if shape.ranks:
        told["unrated_weight"][...] = draws.choice([1e-40, 1e-6, 0.2, 0.9, 1 - 2.0**-50])
    for name in ("tau", "unit", "clip", "joint_precision", *["usual_weight"] * shape.ranks):
        told[name][...] = np.clip(np.abs(told[name]), 1.1e-30, 0.9e30)
    columns["weight"][...] = np.clip(np.abs(columns["weight"]), 1.1e-30, 0.9e30)
    if draws.random() < 0.5:
        columns["covariance"][...] = np.abs(columns["covariance"])
    k = np.arange(shape.rank)
    diagonal = columns["covariance"][:, k * (k + 3) // 2]
    columns["covariance"][:, k * (k + 3) // 2] = np.abs(diagonal)


def with_user(run_input, items, masked):
    """The same users, one of whom has rated other things."""
    lists = run_input.lists
    at, end = lists.indptr[USER], lists.indptr[USER + 1]
    joined = np.concatenate((lists.items[:at], items, lists.items[end:])).astype(np.int32)
    ratings = np.concatenate(
        (run_input.masked_ratings[:at], masked, run_input.masked_ratings[end:])
    )
    indptr = lists.indptr.copy()
    indptr[USER + 1 :] += len(items) - (end - at)
    kept = RatedItems(indptr, joined)
    return replace(run_input, lists=kept, masked_ratings=ratings.astype(np.float32))


def anybody(draws):
    """Any number of ratings, of any sizes."""
    items = np.flatnonzero(draws.random(N_ITEMS) < draws.choice([0.1, 0.5, 1.0]))
    return items, numbers(draws, len(items), some_sizes(draws)) if len(items) else np.zeros(0)


def integers_of(engine, run_input, broadcast, p):
    """A site's vector before noise, rows and totals; why there is none, if there is none."""
    halves = engine.halves(run_input)
    halves.user_factors = p
    try:
        with np.errstate(all="ignore"):
            found = halves.update(broadcast, 2)
    except (WireError, np.linalg.LinAlgError) as error:
        return str(error)
    told = found.totals[0] if run_input.cohorts[0].clips_totals else np.zeros(0)
    return np.concatenate((found.rows[0].ravel(), told)).astype(np.int64)


def square(difference):
    """Squared length, exactly."""
    return sum(int(step) ** 2 for step in difference)


def check_moves(vectors, reach):
    """A user's own vector has length `reach` at most; two users' differ by twice that at most."""
    alone, one, other = vectors
    assert len({type(vector) for vector in vectors}) == 1, "refusals must not depend on a user"
    if isinstance(alone, str):
        assert alone == one == other
        return 0.0
    assert square(one - alone) <= reach**2
    assert square(other - alone) <= reach**2
    assert square(one - other) <= (2 * reach) ** 2
    return square(one - alone) ** 0.5 / reach


@pytest.mark.parametrize("engine", ["numpy", "numba", "torch"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_user_moves_the_integers_by_the_clip_at_most(runs, tried, kind, engine):
    run, largest = runs[kind], []
    run_input, honest = run.training_input, run.coordinator().half.broadcast()
    shape, guarantee = run_input.update_shape, dp_guarantee.guarantee_of(run.settings)
    n_entries = N_ITEMS * shape.width

    @settings(max_examples=150, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**32), st.sampled_from([2.0**9, 2.0**14, None]))
    def holds(seed, scale):
        draws = np.random.default_rng(seed)
        scale = scale or guarantee.scale_among(N_USERS)
        grid = guarantee.grid(scale, N_USERS, n_entries, shape.n_noisy_totals)
        broadcast = hostile(draws, shape, honest)
        p = numbers(draws, (N_USERS, shape.n_own), some_sizes(draws)).astype(np.float32)
        try:
            SOLVERS[run.settings.solver].check(shape, broadcast)
        except WireError:
            return
        sites = [with_user(run_input, [], [])]
        sites += [with_user(run_input, *anybody(draws)) for _ in range(2)]
        vectors = [
            integers_of(tried(engine), replace(site, cohorts=(grid.cohort,)), broadcast, p)
            for site in sites
        ]
        event("refused" if isinstance(vectors[0], str) else "answered")
        largest.append(check_moves(vectors, CLIP * scale))

    holds()
    assert max(largest) > 0.9  # updates of the full length are among them
    assert len(largest) > 75


def test_without_the_engines_clip_a_server_moves_them_further(runs):
    """The property has power: a server that names a larger clip is held by the engine's alone."""
    run = runs["vb"]
    run_input, broadcast = run.training_input, run.coordinator().half.broadcast()
    parameters = broadcast.parameters.copy()
    parameters[run_input.update_shape.blocks["parameters"].place("clip")] *= 3
    broadcast = replace(broadcast, parameters=parameters)
    (cohort,), p = run_input.cohorts, np.zeros((N_USERS, run_input.update_shape.n_own), np.float32)
    sites = [with_user(run_input, [], []), run_input]
    for clip, is_held in ((cohort.clip, True), (np.inf, False)):
        sent = [
            replace(site, cohorts=(replace(cohort, clip=clip, bound=9.0, total_bound=9.0),))
            for site in sites
        ]
        alone, one = (integers_of(ENGINES["numba"], site, broadcast, p) for site in sent)
        assert (square(one - alone) <= (CLIP * cohort.scale) ** 2) == is_held


# Through a party's own code, from the message on


class NoNoise:
    """A sampler that draws nothing."""

    def __call__(self, n, sigma):
        return np.zeros(n, np.int64)


def _name_release(shape, broadcast, stage):
    """Ask for what is due, and with the clip of the charter: else a party refuses."""
    if isinstance(shape, PrivateShape):
        told = shape.blocks["parameters"].split(broadcast.parameters)
        told["stage"][...], told["clip"][...] = plan.STAGES.index(stage), CLIP


def site_of(run, ratings, engine):
    """A site of all users, with these ratings of one of them, in the run's layout."""
    held = Holdings(ratings, run.settings)
    party = make_silos(held, np.array([0, N_USERS]), ENGINES[engine])["000000"]
    read(party.answer(run.plan.invitation().encode()), (Joined,))
    layout = run.layout.encode()
    read(party.answer(parcel(Adopt(name_of(layout)), layout)), (Adopted,))
    return party


def replaced(ratings, draws):
    """The same ratings, but for one user, who has others of other items."""
    is_theirs = ratings.user_codes == USER
    n = int(draws.integers(1, N_ITEMS + 1))
    order = np.concatenate((ratings.user_codes[~is_theirs], np.full(n, USER)))
    items = np.concatenate(
        (ratings.item_codes[~is_theirs], np.sort(draws.permutation(N_ITEMS)[:n]))
    )
    ends = (ratings.scale.min, ratings.scale.max)
    values = np.concatenate((ratings.values[~is_theirs], draws.choice(ends, n)))
    place = np.lexsort((items, order))
    new = {"user_codes": order[place], "item_codes": items[place], "values": values[place]}
    return replace(ratings, **new, timestamps=None)


@pytest.mark.parametrize("engine", ["numpy", "numba"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_summed", [False, True])
def test_a_sites_answer_moves_by_the_clip_at_most(runs, monkeypatch, kind, engine, is_summed):
    """Two sites that differ in one user, over whole runs of a hostile server."""
    monkeypatch.setattr(dp_guarantee, "discrete_gaussian", NoNoise())
    run, reaches = runs[kind], []
    shape, noise = run.plan.update_shape, "distributed" if is_summed else "local"
    guarantee = dp_guarantee.guarantee_of(run.settings.changed(dp_noise=noise))
    codec = None
    if is_summed:
        sizes = round_sizes(run.catalogue.n_items, run.layout, shape)
        codec = codec_of(sizes, guarantee.bounds(3), 2 + N_USERS, SOLVERS[run.settings.solver].ring)
    scale = guarantee.own_scale if codec is None else float(codec.rows.scale)
    for seed in range(8):
        draws = np.random.default_rng(seed)
        sites = [
            site_of(run, replaced(run.ratings, np.random.default_rng((seed, n))), engine)
            for n in range(2)
        ]
        for site in sites:
            site.run.policy = replace(site.policy, noise=guarantee)
        for t in range(1, ROUNDS + 1):
            broadcast = hostile(draws, shape, run.coordinator().half.broadcast())
            _name_release(shape, broadcast, releases.due(guarantee.order, t))
            work = Round.of(broadcast, t, 0, False)
            try:
                SOLVERS[run.settings.solver].check(shape, broadcast)
            except WireError:
                continue
            sent = [site.run.contribute(work, codec, None, 3) for site in sites]
            one, other = (
                np.rint(np.concatenate((part.rows.ravel(), part.totals)) * (1 if codec else scale))
                for part in sent
            )
            reaches.append(square(one - other) ** 0.5 / (CLIP * scale))
    assert len(reaches) > 30
    assert 0.5 < max(reaches) <= 2.0
