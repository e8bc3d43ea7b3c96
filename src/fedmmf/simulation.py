"""Every party at once: the same maths as `party`, in kernels, in one process."""

from collections.abc import Callable, Mapping, Sequence

import numba
import numpy as np

from fedmmf import rng, threads, wire
from fedmmf.arrays import Array
from fedmmf.config import Settings
from fedmmf.coordinator import HELD_OUT_TOTALS, Catalogue, Server, make_solver, part_of
from fedmmf.data import Ratings
from fedmmf.factorization import sgd, sgd_kernels, vb_kernels
from fedmmf.factorization.contract import CrowdSolver, ItemSums, Public, added
from fedmmf.factorization.sides import Raters, Sides
from fedmmf.groups import Group, make_groups
from fedmmf.masks import FittedMasks, fit_masks
from fedmmf.masks.crowd import Compiled
from fedmmf.masks.fitting import needs_streams

ROW_ENERGY = 1.6  # MovieLens genres and years have it as they are
MIN_RATINGS_TO_HOLD_OUT = 5  # a party with fewer trains on all it has
STATISTICS_SHRINKAGE = 10.0  # ratings' worth of pull of an item's mean towards the midpoint


@numba.njit(cache=True, nogil=True, fastmath=True)
def _pair_pass(
    begin: int, end: int, users: Array, items: Array, p: Array, q: Array, out: Array
) -> None:
    """Write q_i . p_u for pairs begin..end."""
    for j in range(begin, end):
        total = np.float32(0)
        for f in range(q.shape[1]):
            total += q[items[j], f] * p[users[j], f]
        out[j] = total


def pair_scores(users: Array, items: Array, p: Array, q: Array) -> Array:
    """q_i . p_u for each pair. (n,)."""
    out = np.empty(len(users), np.float32)
    users, items = threads.frozen(users, np.int32), threads.frozen(items, np.int32)
    p, q = threads.frozen(p, np.float32), threads.frozen(q, np.float32)
    parts = threads.ranges(np.arange(len(users) + 1), threads.n_threads())
    threads.run(lambda begin, end: _pair_pass(begin, end, users, items, p, q, out), parts)
    return out


def choose_held_out(ratings: Ratings, settings: Settings) -> Array:
    """Which ratings their parties keep for early stopping instead of training. (n,) bool."""
    draw = rng.stream(settings.seed, "held out").random(ratings.n_ratings)
    is_long = np.diff(ratings.by_user) >= MIN_RATINGS_TO_HOLD_OUT  # (n_users,)
    return np.asarray(is_long[ratings.user_codes] & (draw < settings.held_out_share))


def fit_all_masks(
    ratings: Ratings,
    features: Array,
    settings: Settings,
    progress: Callable[[int], None] | None = None,
) -> FittedMasks:
    """Train every party's private model on that party's ratings."""
    streams = []
    if needs_streams(settings.mask):
        streams = [mask_stream(settings.seed, user) for user in ratings.user_ids]
    return fit_masks(
        settings.mask,
        ratings.by_user,
        ratings.item_codes,
        ratings.values,
        features,
        ratings.scale,
        strength=settings.mask_strength,
        folds=settings.folds,
        streams=streams,
        runner=Compiled(progress),
    )


def mask_stream(seed: int, user_id: object) -> np.random.Generator:
    """Where a simulated party takes its mask's random start from."""
    return rng.stream(seed, "mask", str(user_id))


def content_features(ratings: Ratings) -> Array:
    """Item features as masks and priors take them; no columns where there are none. (n_items, d).

    All are scaled by one number, so that a strength of regularisation means the same for a few
    genres and for twenty components of tags: the mean squared length of a row becomes `ROW_ENERGY`.
    """
    if ratings.features is None:
        return np.zeros((ratings.n_items, 0))
    values = np.asarray(ratings.features.values, np.float64)
    energy = np.square(values).sum(axis=1).mean()
    return np.ascontiguousarray(values * np.sqrt(ROW_ENERGY / max(energy, 1e-12)))


def survey(ratings: Ratings) -> ItemSums:
    """What `Plain.survey` gives: each item's ratings around the middle of [0, 1], and counts."""
    rows = ratings.scale.to_unit(ratings.values) - 0.5
    sums = np.bincount(ratings.item_codes, rows, ratings.n_items)[:, np.newaxis]
    return ItemSums(sums, np.diff(ratings.by_item.indptr), np.zeros(0))


def statistics_features(sums: ItemSums) -> Array:
    """Shrunken mean and logarithm of the count of each item, as mask features. (n_items, 2)."""
    counts = sums.n_raters.astype(np.float64)
    means = sums.rows[:, 0] / (counts + STATISTICS_SHRINKAGE)
    columns = np.column_stack((means, np.log1p(counts)))
    columns -= columns.mean(axis=0)
    return np.asarray(columns / np.maximum(columns.std(axis=0), 1e-12))


def feature_matrix(ratings: Ratings, settings: Settings) -> Array:
    """The features of a run: of the content, and, where asked for, of a survey. (n_items, d)."""
    content = content_features(ratings)
    if not settings.item_statistics:
        return content
    return np.hstack((content, statistics_features(survey(ratings))))


def make_server(ratings: Ratings, settings: Settings, member: int = 0) -> Server:
    """Set up the server for these ratings."""
    catalogue = Catalogue(
        n_items=ratings.n_items,
        span=ratings.scale.span,
        level=ratings.scale.midpoint if settings.mask == "none" else 0.0,
        ratings_per_user=ratings.n_ratings / ratings.n_users,
        features=content_features(ratings),
    )
    solver = make_solver(settings, catalogue, member, vb_kernels.posterior_rows)
    return Server(settings, solver)


def both_sides(ratings: Ratings) -> Sides:
    """Ratings as the kernels walk over them."""
    by_item = ratings.by_item
    users = ratings.user_codes[by_item.order]
    raters = Raters(by_item.indptr, by_item.order, users)
    return Sides(ratings.by_user, ratings.item_codes, raters)


_SOLVERS: dict[str, Callable[[Sides, Array, int], CrowdSolver]] = {
    "sgd": sgd_kernels.Crowd,
    "vb": vb_kernels.Crowd,
}


class Crowd:
    """All parties of a simulation.

    Args:
        solver: name of the solver.
        factors: length of p_u.
        sides: what the parties train on.
        masked_ratings: the same ratings, masked. (n,)
        groups: who is summed with whom; they are added up.
        held_out: what they keep for early stopping, if anything.
        held_out_mask: f_u(i) of the held-out ratings. (n_held_out,)
        seed: of simulated noise.
        member: number of the run in an ensemble; each has noise of its own.
    """

    def __init__(
        self,
        solver: str,
        factors: int,
        sides: Sides,
        masked_ratings: Array,
        groups: Sequence[Group],
        held_out: Ratings | None = None,
        held_out_mask: Array | None = None,
        seed: int = 0,
        member: int = 0,
    ) -> None:
        self._solver = _SOLVERS[solver](sides, masked_ratings, factors)
        self._groups, self._noise = groups, (seed, "noise", member)
        self._sides, self._masked, self._n_users = sides, masked_ratings, sides.n_users
        self._held_out, self._held_out_mask = held_out, held_out_mask
        self._best = self.user_factors.copy()

    @property
    def user_factors(self) -> Array:
        """p_u of everybody. (n_users, k)."""
        return self._solver.user_factors

    def sums(self, message: wire.Round) -> ItemSums:
        """Take part in a round."""
        self._remember_best(message)
        cohorts = [group.cohort for group in self._groups]
        rows, totals = self._solver.update(message.public, message.round, cohorts)
        totals = np.hstack((self._held_out_totals(message.public.item_factors), totals))
        noise = rng.stream(*self._noise, message.round)
        parts = [
            group.sums(part, totals, noise) for group, part in zip(self._groups, rows, strict=True)
        ]
        return added(parts)

    def finish(self, message: wire.Round) -> None:
        """Go back to the p_u of the best round, where there is one."""
        self._remember_best(message)
        if message.best_round:
            self._solver.user_factors = self._best
        for group in self._groups:
            if group.is_collected:
                self._settle(group, message.public)

    def _settle(self, group: Group, public: Public) -> None:
        """Let parties that had no part in the rounds find p_u for the final item factors."""
        factors = self.user_factors.copy()
        for user in np.flatnonzero(group.is_member):
            mine = slice(self._sides.by_user[user], self._sides.by_user[user + 1])
            party = sgd.Local(public.factors)
            party.settle(self._masked[mine], public.take(self._sides.items[mine]))
            factors[user] = party.user_factors
        self._solver.user_factors = factors

    def _remember_best(self, message: wire.Round) -> None:
        if message.best_round and message.best_round == message.round - 1:
            self._best = self.user_factors.copy()

    def _held_out_totals(self, q: Array) -> Array:
        """Number of held-out ratings and their squared error, of every user. (n_users, 2)."""
        held_out = self._held_out
        if held_out is None:
            return np.zeros((self._n_users, HELD_OUT_TOTALS))
        scores = pair_scores(held_out.user_codes, held_out.item_codes, self.user_factors, q)
        predicted = held_out.scale.clip(scores + self._held_out_mask)
        squares = np.square(held_out.values - predicted, dtype=np.float64)
        counts = np.diff(held_out.by_user)
        return np.column_stack((counts, np.bincount(held_out.user_codes, squares, self._n_users)))

    def state(self) -> dict[str, Array]:
        """Everything that changes from round to round, for a checkpoint."""
        solver = {f"parties/{name}": value for name, value in self._solver.state().items()}
        return {"parties-best": self._best, **solver}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from a checkpoint's state."""
        self._solver.restore(part_of(state, "parties/"))
        self._best = state["parties-best"].copy()


def make_crowd(
    ratings: Ratings,
    settings: Settings,
    masks: FittedMasks,
    factors: int,
    in_clear: Array,
    held_out: Ratings | None = None,
    held_out_mask: Array | None = None,
    member: int = 0,
) -> Crowd:
    """All parties, summed as the settings say.

    Args:
        ratings: what they train on.
        settings: of the run.
        masks: fitted on `ratings`.
        factors: length of p_u, as the server has it.
        in_clear: who shares updates in the clear. (n_users,) bool
        held_out: what they keep for early stopping, if anything.
        held_out_mask: f_u(i) of the held-out ratings. (n_held_out,)
        member: number of the run in an ensemble.
    """
    sides, masked = both_sides(ratings), masks.masked_ratings(settings.cross_fit)
    groups = make_groups(sides, settings, ratings.scale.span, in_clear)
    rest = (held_out, held_out_mask, settings.seed, member)
    return Crowd(settings.solver, factors, sides, masked, groups, *rest)
