"""`vb` under noise for every party at once: one pass over users, who are clipped one by one."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fedmmf.arrays import Array
from fedmmf.engines.contract import Cohort, CohortSums, TrainingInput
from fedmmf.engines.kernels import threads
from fedmmf.engines.kernels.vb_private_posterior import Public, posterior
from fedmmf.solvers.contract import MAX_NUMBER, MAX_TOTAL, Broadcast
from fedmmf.solvers.vb.private import PrivateReading, PrivateShape, plan
from fedmmf.solvers.vb.private.party import MEANS_GAINS, ROWS_GAIN, starting_user, totals_gain
from fedmmf.storage.kernel_cache import cached_jit

FLOAT_PARTS = 8  # tables of floating-point sums
_COUNTS, _MEANS, _MAX_USER = plan.COUNTS, plan.MEANS, plan.MAX_USER
_WEIGHTS_GAIN, _ERRORS_GAIN = MEANS_GAINS
_SOLVE_ONLY = -1  # a stage in which p alone moves

# Not all of fastmath: kernels test whether numbers are finite.
_jit = cached_jit(nogil=True, fastmath={"reassoc", "contract", "arcp", "nsz"}, error_model="numpy")


class Sending(NamedTuple):
    """How a cohort clips, bounds and rounds; a scale of 0: floating point."""

    clip: float
    clips_totals: bool
    bound: float
    scale: float
    total_bound: float
    total_scale: float


@_jit
def _shorten(vector: Array, length: float) -> None:
    """Shrink a vector to that length at most."""
    found = np.sqrt(np.sum(vector * vector))
    if found > length:
        vector *= length / found


@_jit
def _fill_counts(mine: Array, ratings: Array, public: Public, rows: Array) -> None:
    """The same number for each rated item; in lists, in proportion to its value."""
    if public.ranks:
        values = ratings - public.unrated_value
        length = max(np.sqrt(np.sum(values * values)), 1e-300)
        rows[:, 0] = public.clip * values / length
    else:
        rows[:, 0] = public.clip / np.sqrt(len(mine))


@_jit
def _fill_means(mine: Array, ratings: Array, public: Public, rows: Array) -> None:
    """Weights, and weighted ratings around the party's own mean."""
    weights, errors = public.weight[mine], ratings - public.middle
    weights = weights / np.sqrt(np.sum(weights * weights))
    if public.design.shape[1]:
        a = public.mean.shape[1] - 1
        errors = errors - np.sum(errors) / (len(mine) + public.tau * public.precision[a])
    errors = weights * errors / public.unit
    _shorten(errors, public.clip)
    rows[:, 0] = _WEIGHTS_GAIN * public.clip * weights
    rows[:, 1] = _ERRORS_GAIN * errors


@_jit
def _fill_gradients(mine: Array, errors: Array, p: Array, public: Public, rows: Array) -> None:
    """Weighted errors times (1, p_u), clipped as one vector."""
    weights = public.weight[mine]
    errors = weights / np.sqrt(np.sum(weights * weights)) * errors / public.row_unit
    length = np.sqrt(np.sum(errors * errors) * (1.0 + np.sum(p * p)))
    shrunk = ROWS_GAIN * (public.clip / length if length > public.clip else 1.0)
    for row in range(len(mine)):
        rows[row, 0] = shrunk * errors[row]
        for f in range(len(p)):
            rows[row, 1 + f] = shrunk * errors[row] * p[f]


@_jit
def _fill_cross(p: Array, covariance: Array, mean: Array, public: Public, cross: Array) -> None:
    """Cov[p, mask weights]; in lists, products of (1, p) and the mean of mask weights."""
    a, j = len(p), public.design.shape[1]
    for g in range(j):
        if public.ranks:
            cross[g] = mean[a + g] / public.unit
        for f in range(a):
            if public.ranks:
                cross[(1 + f) * j + g] = p[f] * mean[a + g] / public.unit
            else:
                cross[f * j + g] = covariance[f, a + g] / public.unit


@_jit
def _share(mine: Array, public: Public) -> float:
    """Weight of the user in the totals: 1, or in lists w_u, over what is usual."""
    if not public.ranks:
        return 1.0
    weights = public.weight[mine]
    return float(1.0 / (np.sqrt(np.sum(weights * weights)) * public.usual_weight))


@_jit
def _fill_totals(
    p: Array, covariance: Array, mean: Array, share: float, public: Public, totals: Array
) -> None:
    """Moments of p_u and its covariances, each block clipped to its public bound."""
    k, a, j = public.rank - 1, public.mean.shape[1] - 1, public.design.shape[1]
    triangle = k * (k + 1) // 2
    begin_covariance, begin_cross = k + triangle, k + 2 * triangle
    begin_level = begin_cross + (k + public.ranks) * j
    for f in range(a):
        totals[f] = p[f]
        place = f * (f + 1) // 2
        for g in range(f + 1):
            totals[k + place + g] = p[f] * p[g]
            totals[begin_covariance + place + g] = covariance[f, g]
    _fill_cross(p, covariance, mean, public, totals[begin_cross:begin_level])
    if begin_level < len(totals):
        totals[begin_level] = mean[a] / public.unit
    totals *= share
    begins = (0, begin_covariance, begin_cross, begin_level, len(totals))
    for block in range(4):
        part = totals[begins[block] : begins[block + 1]]
        _shorten(part, public.bounds[block])
        part *= public.gain / public.bounds[block]


@_jit
def _is_small(rows: Array, totals: Array, own: Array) -> bool:
    """Whether all of a user's numbers can be added."""
    is_small = True
    for number in rows.ravel():
        is_small &= abs(number) <= MAX_NUMBER  # NaN is not
    for number in own:
        is_small &= abs(number) <= MAX_NUMBER
    for number in totals:
        is_small &= abs(number) <= MAX_TOTAL
    return is_small


@_jit
def _rounded(value: float, bound: float, scale: float) -> float:
    """Bound and round a number, in steps."""
    return np.rint(min(max(value, -bound), bound) * scale) if scale > 0 else value


@_jit
def _add(
    mine: Array, rows: Array, totals: Array, how: Sending, sums: Array, all_totals: Array
) -> None:
    """Clip a user's update as one vector, round it, and add it."""
    squares = np.sum(rows * rows)
    if how.clips_totals:
        squares += np.sum(totals * totals)
    length = np.sqrt(squares)
    shrunk = how.clip / length if length > how.clip else 1.0
    of_totals = shrunk if how.clips_totals else 1.0
    for row in range(len(mine)):
        for f in range(rows.shape[1]):
            sums[mine[row], f] += _rounded(shrunk * rows[row, f], how.bound, how.scale)
    for f in range(len(totals)):
        told = _rounded(of_totals * totals[f], how.total_bound, how.total_scale)
        all_totals[f] += told


@_jit
def _fill_factors(
    mine: Array, ratings: Array, public: Public, rows: Array, totals: Array, own: Array
) -> bool:
    """Fill a user's vector and, in a round, rows and totals; return whether that is possible."""
    a, j = public.mean.shape[1] - 1, public.design.shape[1]
    covariance, mean = np.zeros((a + j, a + j)), np.zeros(a + j)
    errors = posterior(mine, ratings, public, covariance, mean)
    if len(errors) < len(mine) or not np.isfinite(mean).all():
        return False
    own[1 : public.rank] = 0.0
    own[0], own[1 : 1 + a], own[public.rank :] = 1.0, mean[:a], mean[a:]
    if public.stage != _SOLVE_ONLY:
        short = mean[:a].copy()
        _shorten(short, _MAX_USER)
        _fill_gradients(mine, errors, short, public, rows)
        _fill_totals(short, covariance, mean, _share(mine, public), public, totals)
    return True


@_jit
def user_pass(
    users: tuple[int, int],
    ratings_of: tuple[Array, Array, Array],
    state: tuple[Array, Array],
    public: Public,
    how: Sending,
    sums: tuple[Array, Array],
) -> int:
    """Run some users; return how many overflowed. Those add nothing, and keep their p."""
    (indptr, items, masked), (p, is_member), (all_rows, all_totals) = ratings_of, state, sums
    overflowed = 0
    for user in range(users[0], users[1]):
        mine = items[indptr[user] : indptr[user + 1]]
        ratings = masked[indptr[user] : indptr[user + 1]].astype(np.float64)
        rows, totals = np.zeros((len(mine), public.rank)), np.zeros(len(all_totals))
        own, is_sound = p[user].astype(np.float64), True
        if public.stage == _COUNTS:
            _fill_counts(mine, ratings, public, rows)
        elif public.stage == _MEANS:
            _fill_means(mine, ratings, public, rows)
        elif len(mine) or public.stage == _SOLVE_ONLY:
            is_sound = _fill_factors(mine, ratings, public, rows, totals, own)
        if not is_sound or not _is_small(rows, totals, own):
            overflowed += 1
            continue
        p[user] = own.astype(np.float32)
        if public.stage != _SOLVE_ONLY and is_member[user]:
            _add(mine, rows, totals, how, all_rows, all_totals)
    return overflowed


class PrivateHalves:
    """The user group of `vb` under noise: the party's half of every user."""

    def __init__(self, given: TrainingInput) -> None:
        if not isinstance(given.update_shape, PrivateShape):
            raise TypeError("vb under noise has forms of its own")
        self._given, self._shape = given, given.update_shape
        self._by_user = threads.frozen(given.lists.indptr, np.int64)
        self._items = threads.frozen(given.lists.items, np.int32)
        self._masked = threads.frozen(given.masked_ratings, np.float32)
        self._p = np.tile(starting_user(given.update_shape), (given.lists.n_users, 1))

    @property
    def user_factors(self) -> Array:
        """Posterior means of all p_u. (n_users, n_own)."""
        return self._p

    @user_factors.setter
    def user_factors(self, value: Array) -> None:
        self._p[:] = value

    def update(self, broadcast: Broadcast, t: int) -> CohortSums:
        """Compute all updates; return the sums of each cohort.

        Of several cohorts each is a pass of its own: p_u is the same in all of them.
        """
        reading, rows, totals, n_overflowed = self._reading(broadcast), [], [], 0
        for cohort in self._given.cohorts:
            found, total, n_overflowed = self._sums(reading, cohort)
            rows.append(found.astype(np.int64 if cohort.is_fixed else np.float32))
            totals.append(total)
        return CohortSums(rows, totals, n_overflowed)

    def solve_users(self, broadcast: Broadcast, users: Array) -> None:
        """Compute p_u of some users for fixed item factors, without a round."""
        before, is_other = self._p.copy(), np.ones(len(self._p), bool)
        is_other[users] = False
        self._sums(self._reading(broadcast), Cohort(), _SOLVE_ONLY)
        self._p[is_other] = before[is_other]

    def _reading(self, broadcast: Broadcast) -> PrivateReading:
        return PrivateReading.of(self._shape, broadcast, self._given.design)

    def _sums(
        self, reading: PrivateReading, cohort: Cohort, stage: int | None = None
    ) -> tuple[Array, Array, int]:
        """Run a pass over all users; rows and totals of a cohort, and who overflowed."""
        n_parts = threads.n_threads() if cohort.is_fixed else FLOAT_PARTS
        parts = threads.ranges(self._by_user, n_parts) or [(0, len(self._p))]
        shape = (len(parts), self._given.n_items, self._shape.width)
        sums, totals = np.zeros(shape), np.zeros((len(parts), self._shape.n_totals))
        members = np.ones(len(self._p), bool) if cohort.members is None else cohort.members
        ratings = (self._by_user, self._items, self._masked)
        state = (self._p, threads.frozen(members, bool))
        with np.errstate(all="ignore"):
            arguments = (ratings, state, _public(reading, stage), _sending(cohort))
        places = {begin: place for place, (begin, _) in enumerate(parts)}
        kernel: Any = user_pass
        overflowed: list[int] = []

        def run(begin: int, end: int) -> None:
            own = (sums[places[begin]], totals[places[begin]])
            overflowed.append(kernel((begin, end), *arguments, own))

        with np.errstate(all="ignore"), threads.one_blas_thread():
            threads.run(run, parts)
        rows = sums.sum(axis=0)
        if cohort.left_out is not None:
            rows[cohort.left_out] = 0.0
        return rows, totals.sum(axis=0), sum(overflowed)

    def state(self) -> dict[str, Array]:
        """Return a copy of all users' vectors."""
        return {"value": self._p.copy()}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore all users' vectors from a state."""
        self._p = state["value"].copy()


def _public(reading: PrivateReading, stage: int | None) -> Public:
    """Return the broadcast as a pass reads it, in a stage of its own or another."""
    names = ("mean", "weight", "design", "prior", "precision")
    parts: dict[str, Any] = {
        name: threads.frozen(getattr(reading, name), np.float64) for name in names
    }
    weight = 1.0 / (reading.tau + reading.covariance[:, 0])  # (n_items,)
    root, told = np.sqrt(weight), weight[:, np.newaxis] * reading.covariance[:, 1:]
    columns = root[:, np.newaxis] * np.hstack((reading.mean[:, 1:], reading.design))
    parts |= {
        "root": threads.frozen(root, np.float64),
        "columns": threads.frozen(columns, np.float32),
        "told": threads.frozen(told, np.float64),
    }
    numbers = ("tau", "unit", "clip", "middle", "unrated_weight", "unrated_value", "usual_weight")
    parts |= {name: getattr(reading, name) for name in numbers}
    shape, unrated = reading.update_shape, reading.unrated
    about = plan.constants(ranks=shape.ranks)
    return Public(
        **parts,
        row_unit=reading.unit * about.reach,
        all_precision=threads.frozen(unrated.precision, np.float64),
        all_first=threads.frozen(unrated.first, np.float64),
        gain=reading.clip * totals_gain(shape),
        bounds=np.array([about.bounds[name] for name in plan.BLOCKS]),
        stage=reading.stage if stage is None else stage,
        rank=shape.rank,
        ranks=shape.ranks,
    )


def _sending(cohort: Cohort) -> Sending:
    totals = (cohort.total_bound, cohort.total_scale)
    return Sending(cohort.clip, cohort.clips_totals, cohort.bound, cohort.scale, *totals)
