"""The server's half of `vb` under noise: posteriors of all items, from sums of known noise."""

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import DivergenceError
from fedmmf.solvers.contract import Broadcast, ItemSums, SolverContext
from fedmmf.solvers.vb.private import plan
from fedmmf.solvers.vb.private.learning import Learning, MeanOfSums, State
from fedmmf.solvers.vb.private.lists import OfLists
from fedmmf.solvers.vb.private.party import starting_user
from fedmmf.solvers.vb.private.ratings import OfRatings
from fedmmf.solvers.vb.private.reading import check_broadcast
from fedmmf.solvers.vb.private.shapes import PrivateShape
from fedmmf.solvers.vb.shapes import pack


class PrivateServer:
    """The server's half of `vb` under noise.

    Args:
        settings: of the run: its rounds, factors and clip, and what an unrated item counts as.
        update_shape: of the run.
        context: what it starts from; its regressors give the prior mean of the item factors.
    """

    def __init__(self, settings: Any, update_shape: PrivateShape, context: SolverContext) -> None:
        self.update_shape, self._rounds = update_shape, int(settings.max_rounds)
        self._clip, self._level = float(settings.dp_clip), float(context.level)
        self._unit, self._unrated = context.span / 4, None
        if update_shape.ranks:
            about = (context.lowest, context.span, context.level)
            self._unrated = plan.UnratedPairs.of(settings, *about)
            self._unit, self._level = self._unrated.unit, self._unrated.value
        self._learning = _learning(self._unrated, update_shape, context, self._clip)
        self._now = _beginning(self._learning)

    @property
    def _schedule(self) -> plan.Schedule:
        shape = self.update_shape
        about = (self._rounds, shape.rank - 1, float(self._now.noise))
        return plan.schedule(*about, ranks=shape.ranks)

    def broadcast(self) -> Broadcast:
        """Return means, covariances and weights of all items, and the stage."""
        now, blocks, unit = self._now, self.update_shape.blocks, self._unit
        mean = unit * now.mean
        mean[:, 0] += self._level
        columns = {
            "mean": mean,
            "covariance": unit**2 * now.covariance,
            "weight": now.weight[:, np.newaxis],
        }
        rows = blocks["item_row"].join((len(mean),), **columns).astype(np.float32)
        parameters = blocks["parameters"].join((), **self._parameters())
        return Broadcast(self.update_shape.rank, parameters, rows)

    def _parameters(self) -> dict[str, Array]:
        """Public numbers of the coming round, by name."""
        about, unit, j = self._learning.about, self._unit, self.update_shape.n_joint
        stage = self._schedule.stage(int(self._now.n_done))
        share = min(1.0, plan.USUAL_COLUMNS / max(j, 1))
        variances = np.full(j, share * about.column_variance)
        variances[:1] = about.level_variance
        if self.update_shape.ranks:  # of columns that are divided by the weights
            variances /= np.mean(self._now.weight**-2.0)
        level = np.zeros(j)
        level[:1] = unit * self._now.level
        numbers = {
            "stage": stage,
            "n_active": self._schedule.n_active if stage == plan.FACTORS else 0,
            "tau": about.tau * unit**2,
            "unit": unit,
            "clip": self._clip,
        }
        if self._unrated is None:
            numbers["middle"] = self._level
        else:
            numbers["unrated_weight"] = self._unrated.weight
            numbers["unrated_value"] = self._unrated.value
            numbers["usual_weight"] = float(self._now.usual_weight)
        arrays = {name: np.asarray(value) for name, value in numbers.items()}
        return arrays | {"joint_mean": level, "joint_precision": 1.0 / (variances * unit**2)}

    def advance(self, sums: ItemSums, t: int) -> None:
        """Take a release, and step where those of one kind are complete."""
        now, n_users = self._now, float(sums.n_raters.max(initial=1))
        if not float(now.noise):
            whole = sums.noise_std / (self._clip * math.sqrt(self._rounds))
            now = replace(now, noise=np.asarray(whole / n_users))
        self._now = now = replace(
            now,
            rows=now.rows + np.asarray(sums.rows, np.float64),
            totals=now.totals + np.asarray(sums.totals, np.float64),
            variance=now.variance + sums.noise_std**2,
            n_summed=now.n_summed + n_users,
            n_pending=now.n_pending + 1,
        )
        self._end_round()

    def lose(self) -> None:
        """Do without the release of a round that gave no sum: parties make each but once.

        Raises:
            DivergenceError: all rounds are lost of a stage that nothing can be learned without.
        """
        now, schedule = self._now, self._schedule
        needed = plan.COUNTS if self.update_shape.ranks else plan.MEANS
        n_needed = schedule.numbers[needed]
        is_over = int(now.n_done) + 1 == schedule.end(needed) and n_needed > 0
        if is_over and not int(now.n_pending):
            raise DivergenceError(
                f"all {n_needed} releases of {plan.STAGES[needed]} gave no sum, and parties make "
                "each but once. Find out why so many fail, and train anew"
            )
        self._end_round()

    def _end_round(self) -> None:
        """Step where the releases of one kind are complete."""
        n_done, n_pending = int(self._now.n_done), int(self._now.n_pending)
        schedule = self._schedule
        stage = schedule.stage(n_done)
        is_step = stage == plan.FACTORS and n_pending == schedule.repeats
        if n_pending and (is_step or n_done + 1 == schedule.end(stage)):
            self._step(stage)
        self._now = replace(self._now, n_done=self._now.n_done + 1)

    def _step(self, stage: int) -> None:
        """Learn from the mean of the releases since the last step."""
        now, n = self._now, int(self._now.n_pending)
        noise = math.sqrt(float(now.variance)) / n
        told = MeanOfSums(now.rows / n, now.totals / n, noise, float(now.n_summed) / n)
        nothing = {name: np.zeros_like(getattr(now, name)) for name in _PENDING}
        now, learning = replace(now, **nothing), self._learning
        steps = (learning.learn_counts, learning.learn_means, learning.learn_factors)
        self._now = steps[stage](now, told, self._schedule)

    def check(self, broadcast: Broadcast) -> None:
        """Raise `WireError` unless parties can compute with the broadcast."""
        check_broadcast(self.update_shape, broadcast)

    def unknown(self, regressors: Array) -> Array:
        """Return the prior of items without ratings. (n, broadcast_width)."""
        n_columns = self._learning.x.shape[1]
        x = np.column_stack((np.ones(len(regressors)), regressors))[:, :n_columns]
        mean = self._unit * (x @ self._now.item_weights)
        mean[:, 0] += self._level
        blocks = self.update_shape.blocks["item_row"]
        spread = self._unit**2 * pack(np.diag(1.0 / self._now.item_precision))
        columns = {"mean": mean, "covariance": spread, "weight": np.ones((len(x), 1))}
        return blocks.join((len(x),), **columns).astype(np.float32)

    def state(self) -> dict[str, Array]:
        """Return all arrays of `State` by name."""
        return {part.name: getattr(self._now, part.name) for part in fields(State)}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore all arrays of `State`."""
        found: dict[str, Any] = {part.name: np.array(state[part.name]) for part in fields(State)}
        self._now = State(**found)


_PENDING = ("rows", "totals", "variance", "n_summed", "n_pending")


def _learning(
    unrated: plan.UnratedPairs | None,
    update_shape: PrivateShape,
    context: SolverContext,
    clip: float,
) -> Learning:
    """Return the steps of the run, with what is public and stays."""
    random = context.stream.standard_normal((context.n_items, update_shape.rank - 1))
    x = np.column_stack((np.ones(context.n_items), context.regressors))
    start = plan.constants(ranks=update_shape.ranks).start * random
    public = (update_shape, x, np.asarray(context.design, np.float64), start, clip)
    return OfRatings(*public) if unrated is None else OfLists(*public, unrated.weight)


def _beginning(learning: Learning) -> State:
    """State before the first round."""
    k1, n = learning.update_shape.rank, len(learning.x)
    zero, packed = np.asarray(0.0), len(pack(np.eye(k1)))
    return State(
        n_done=np.asarray(0),
        noise=zero,
        n_users=zero,
        weight=np.ones(n),
        n_weighted=np.zeros(n),
        mean=np.zeros((n, k1)),
        covariance=np.zeros((n, packed)),
        precision=np.zeros((n, packed)),
        first=np.zeros((n, k1)),
        item_precision=np.full(k1, 4.0),
        item_weights=np.zeros((learning.x.shape[1], k1)),
        level=zero,
        usual_weight=np.asarray(1.0),
        rows=np.zeros((n, k1)),
        totals=np.zeros(learning.update_shape.n_totals),
        variance=zero,
        n_summed=zero,
        n_pending=np.asarray(0),
    )


def default_user(update_shape: PrivateShape, broadcast: Broadcast) -> Array:
    """Factors of the default user: none, and a mask at the mean level. (n_own,)."""
    numbers = update_shape.blocks["parameters"].split(broadcast.parameters)
    user = starting_user(update_shape)
    user[update_shape.rank :] = numbers["joint_mean"]
    return user
