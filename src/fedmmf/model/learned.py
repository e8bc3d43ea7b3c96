"""The result of a run, ready for prediction.

Arrays by user and by item end in one more row: default user and unknown item. Codes of unknown
ids point there, so that prediction needs no special case.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from fedmmf.aggregation.simulated import Cost
from fedmmf.arrays import Array
from fedmmf.data import Ratings
from fedmmf.data.rated_items import RatedItems
from fedmmf.data.scales import RatingScale
from fedmmf.engines import ENGINES, lasting_engine
from fedmmf.errors import DataError, UnknownNameError
from fedmmf.federation.local import Member
from fedmmf.masks import FAMILIES, MaskFamily, apply_mask, apply_one_mask, mask_base
from fedmmf.masks.feature_maps import design_of
from fedmmf.masks.indicator import privacy_indicator, rating_variances
from fedmmf.masks.population import Population
from fedmmf.model.evaluation import RatingMeans
from fedmmf.settings import Settings
from fedmmf.simulation.training import Trained, members_from_arrays, members_to_arrays
from fedmmf.solvers import SOLVERS
from fedmmf.solvers.contract import Broadcast, UpdateShape, UserData, whole_factors

_ARRAYS = [
    "user_ids",
    "item_ids",
    "theta",
    "features",
    "indptr",
    "rated_items",
    "j_train",
    "j_out_of_fold",
    "variances",
    "in_clear",
    "line",
]
_PLAIN = [
    "mask",
    "solver",
    "engine",
    "variant",
    "objective",
    "n_content",
    "n_summed",
    "n_ratings",
    "n_training",
    "data",
    "synthetic",
    "seconds",
    "n_left_out",
]


@dataclass(frozen=True, eq=False)
class MaskParameters:
    """Masks that can be applied, without the ratings that they were fitted on."""

    family: MaskFamily
    scale: RatingScale
    population: Population  # which they shrink towards
    theta: Array  # (n_users, n_parameters)


@dataclass(frozen=True, eq=False)
class Learned:
    """Masks, factors and vocabularies of a finished run."""

    mask: str
    solver: str
    engine: str
    scale: RatingScale
    user_ids: Array  # (n_users,) sorted
    item_ids: Array  # (n_items,) sorted
    item_titles: Array | None
    theta: Array  # (n_users + 1, n_parameters)
    features: Array  # what masks see of the items (n_items + 1, d)
    n_content: int  # of these, the first are the items' own
    indptr: Array  # (n_users + 1,) where each user's rated items begin
    rated_items: Array  # (n,)
    j_train: Array  # (n_users,)
    j_out_of_fold: Array
    variances: Array  # (n_users,) of the ratings that J is about, on [0, 1]
    in_clear: Array  # (n_users,) bool, who shared updates in the clear
    means: RatingMeans  # of what it was trained on, to compare with
    variant: str  # of the solver
    objective: str  # rating: predictions are ratings; ranking: they are scores
    line: Array  # expected rating of the default user: weights of 1 and features (m,)
    shrinkage: float  # shrinkage of a user's level towards it, in ratings
    n_summed: int  # items that are summed
    n_ratings: int  # that it was fitted on
    n_training: int  # of these, less those held out
    data: str  # name of the ratings
    synthetic: bool  # whether the ratings are synthetic
    members: list[Member]
    seconds: dict[str, float]
    counted_cost: Cost | None  # of a round among real parties; None: `expected_cost` finds it
    n_left_out: int  # items with too few raters for a sum that hides summands

    @classmethod
    def of(cls, trained: Trained, ratings: Ratings, settings: Settings) -> Self:
        """Collect the result of a run on `ratings`."""
        masks, features = trained.masks, trained.features
        common = masks.population if masks.family.is_centred else trained.layout.population
        found = cls(
            mask=masks.family.name,
            solver=settings.solver,
            engine=lasting_engine(settings.engine),
            scale=ratings.scale,
            user_ids=ratings.user_ids,
            item_ids=ratings.item_ids,
            item_titles=ratings.item_titles,
            theta=np.vstack((masks.theta, np.zeros(masks.theta.shape[1]))),
            features=np.vstack((features, features.mean(axis=0))),
            n_content=0 if ratings.features is None else ratings.features.values.shape[1],
            indptr=ratings.by_user,
            rated_items=ratings.item_codes,
            j_train=masks.j_train,
            j_out_of_fold=masks.j_out_of_fold,
            variances=masks.variances,
            in_clear=trained.in_clear,
            means=RatingMeans.of(ratings),
            variant=trained.variant,
            objective=settings.objective,
            line=common.line,
            shrinkage=common.shrinkage,
            n_summed=len(trained.layout.items),
            n_ratings=len(ratings),
            n_training=len(masks.ratings),
            data=ratings.name,
            synthetic=ratings.synthetic,
            members=trained.members,
            seconds={"mask": trained.mask_seconds, "train": trained.train_seconds},
            counted_cost=trained.counted_cost,
            n_left_out=trained.n_left_out,
        )
        return found if not found.update_shape.n_joint else found._with_own_j(ratings)

    def _with_own_j(self, ratings: Ratings) -> Self:
        """With J of masks that belong to p_u; what they would be without a fold is not known."""
        masks = self._mask_of(ratings.user_codes, ratings.item_codes)
        masks += self._joint_part(ratings.user_codes, ratings.item_codes)
        residuals = (ratings.values - masks) / self.scale.span
        j = privacy_indicator(residuals.astype(np.float64), ratings.by_user)
        unit = self.scale.to_unit(ratings.values.astype(np.float64))
        variances = rating_variances(unit, ratings.by_user)
        unknown = np.full(len(j), np.nan)
        return replace(self, j_train=j, j_out_of_fold=unknown, variances=variances)

    @property
    def is_simulated(self) -> bool:
        """Whether parties and messages were simulated; else all of them were real."""
        return self.counted_cost is None

    @cached_property
    def user_factors(self) -> Array:
        """p_u of every member side by side, then of the default user. (n_users + 1, n_own).

        A user without ratings gets the factors of the default user too.
        """
        factors = np.hstack([member.user_factors for member in self.members])
        default_user = np.concatenate(
            [self._default_user(member.broadcast) for member in self.members]
        )
        has_any = np.diff(self.indptr)[:, np.newaxis] > 0
        return np.vstack((np.where(has_any, factors, default_user), default_user))

    def _default_user(self, broadcast: Broadcast) -> Array:
        """Factors of the default user: the mean user; without a mask, a typical one. (n_own,)."""
        mean = SOLVERS[self.solver].default_user(self.update_shape, broadcast)
        if FAMILIES[self.mask].is_centred or self.objective == "ranking":
            return mean
        weights = self.raters / max(self.raters.sum(), 1)
        level = float(weights @ (broadcast.item_factors @ mean))
        wanted = float(self.line[0] - weights @ self._default_effects[:-1])
        ratio = wanted / level if level else 0.0
        # Around a rating of 0 there is no such scale.
        return np.asarray(mean * (ratio if 0.5 < ratio < 2.0 else 1.0), np.float32)

    @cached_property
    def update_shape(self) -> UpdateShape:
        """Sizes of the updates that the solver used."""
        return SOLVERS[self.solver].update_shape(self.members[0].broadcast.rank, self.variant)

    @cached_property
    def item_factors(self) -> Array:
        """q_i of every member side by side, divided by their number: q.p is then the mean.

        Where masks belong to p_u, what is known of an item stands beside each q_i.
        """
        shape = self.update_shape
        factors = np.hstack(
            [whole_factors(shape, member.broadcast, self._design) for member in self.members]
        )
        unknown = factors.mean(axis=0, dtype=np.float64)
        return np.asarray(np.vstack((factors, unknown)) / len(self.members), np.float32)

    @cached_property
    def _design(self) -> Array:
        """Columns in which masks are linear. (n_items, m)."""
        sees_features = FAMILIES[self.mask].needs_features
        return design_of(self.features[:-1], sees_features=sees_features)

    @property
    def is_implicit(self) -> bool:
        """Whether it was trained on implicit feedback."""
        return self.objective == "ranking" and self.means.overall == self.scale.max

    @property
    def rounds(self) -> int:
        """Number of rounds of all members of the ensemble together."""
        return sum(len(member.history) for member in self.members)

    @cached_property
    def raters(self) -> Array:
        """How many users have rated each item in training. (n_items,)."""
        return np.bincount(self.rated_items, minlength=self.n_items)

    @property
    def n_users(self) -> int:
        """Number of users known from training."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """Number of items known from training."""
        return len(self.item_ids)

    def user_codes(self, ids: Array) -> Array:
        """Codes of user ids; n_users for unknown ones. (n,)."""
        return _codes(self.user_ids, ids)

    def item_codes(self, ids: Array) -> Array:
        """Codes of item ids; n_items for unknown ones. (n,)."""
        return _codes(self.item_ids, ids)

    def known_user_codes(self, ids: Array) -> Array:
        """Codes of users who must be known. (n,)."""
        codes = self.user_codes(ids)
        if (codes == self.n_users).any():
            raise UnknownNameError(
                f"the model knows no user {_some_of(ids[codes == self.n_users])}; it knows "
                f"{self.n_users:,}, such as {self.user_ids[0].item()!r}. Give a newcomer's ratings "
                "instead.",
                flags="--ratings FILE",
            )
        return codes

    def known_item_codes(self, ids: Array) -> Array:
        """Codes of items that must be known. (n,)."""
        codes = self.item_codes(ids)
        if (codes == self.n_items).any():
            raise UnknownNameError(
                f"the model knows no item {_some_of(ids[codes == self.n_items])}; it knows "
                f"{self.n_items:,}, such as {self.item_ids[0].item()!r}. Leave out what was not in "
                "the training ratings."
            )
        return codes

    def rated_by(self, code: int) -> Array:
        """Items that a user has rated."""
        return self.rated_items[self.indptr[code] : self.indptr[code + 1]]

    def predict(self, users: Array, items: Array) -> Array:
        """q_i . p_u + f_u(i) for pairs of codes, as `shown` shows it. (n,).

        That the default user rates an item says something of that user, as of any newcomer.
        """
        engine = ENGINES[self.engine]
        scores = engine.pair_scores(users, items, self.user_factors, self.item_factors)
        is_default = ~np.append(np.diff(self.indptr) > 0, False)[users]
        scores += np.where(is_default, self._default_effects[items], 0.0)
        return self.shown(scores + self._mask_of(users, items))

    @cached_property
    def _default_effects(self) -> Array:
        """Changes of the default user's scores; none of the unknown item's. (n_items + 1,)."""
        solver, shape = SOLVERS[self.solver], self.update_shape
        effects, items = np.zeros(self.n_items + 1, np.float32), np.arange(self.n_items)
        for member in self.members:
            if member.broadcast.newcomers is not None:
                reading = solver.reading(shape, member.broadcast, self._design)
                about = (UserData.of_nobody(shape), reading, items)
                effects[:-1] += solver.party(shape).effects_of_rating(*about)
        return effects / np.float32(len(self.members))

    def shown(self, scores: Array) -> Array:
        """Convert scores to ratings as the solver defines it; ranking scores stay. (n,)."""
        solver, first = SOLVERS[self.solver], self.members[0].broadcast
        numbers = np.mean([member.broadcast.parameters for member in self.members], axis=0)
        broadcast = Broadcast(first.rank, numbers, first.item_rows)
        return solver.ratings_of(self.update_shape, broadcast, scores, self.scale)

    def predict_masks(self, users: Array, items: Array) -> Array:
        """f_u(i) alone, clipped to the scale. (n,)."""
        masks = self._mask_of(users, items) + self._joint_part(users, items)
        return np.asarray(self.scale.clip(masks))

    def _joint_part(self, users: Array, items: Array) -> Array:
        """Predictions of masks that are fitted jointly with p_u, for pairs of codes. (n,)."""
        is_mask = np.arange(self.update_shape.n_own) >= self.update_shape.rank
        columns = np.tile(is_mask, len(self.members))
        p, q = self.user_factors[:, columns], self.item_factors[:, columns]
        return ENGINES[self.engine].pair_scores(users, items, p, q)

    def _mask_of(self, users: Array, items: Array) -> Array:
        """f_u(i) for pairs of codes. (n,)."""
        order = np.argsort(users, kind="stable")
        indptr = np.searchsorted(users[order], np.arange(self.n_users + 2))
        out = np.empty(len(users), np.float32)
        lists, runner = RatedItems(indptr, items[order]), ENGINES[self.engine].mask_runner()
        out[order] = apply_mask(self._masks(), lists, self.features, runner)
        return out

    def scorer(self, items: Array) -> Callable[[int], Array]:
        """Return a function that gives q_i . p_u + f_u(i) of a user for these items. (n,) float32.

        Rankings are made before clipping: after it, all scores above the maximum would tie. One
        user at a time, so that a user's list does not depend on who else gets one, and so that
        memory does not grow with the number of users.
        """
        factors = np.ascontiguousarray(self.item_factors[items].T)  # (k, n)
        features, masks = self.features[items], self._masks()
        base = mask_base(masks, features)  # the same for all users
        return lambda user: (
            # By columns: equal items tie, and it is four times as fast as by rows.
            np.einsum("fi,f->i", factors, self.user_factors[user])
            + apply_one_mask(masks, user, features, base)
        )

    def check_on_scale(self, values: Array) -> None:
        """Refuse ratings that are not finite or not on the scale."""
        is_off = ~((values >= self.scale.min) & (values <= self.scale.max))
        if is_off.any():
            raise DataError(f"ratings must be on the scale {self.scale}; got {values[is_off][0]}")

    def _masks(self) -> MaskParameters:
        return MaskParameters(FAMILIES[self.mask], self.scale, self.population, self.theta)

    @property
    def population(self) -> Population:
        """Population statistics: the common line, and the shrinkage towards it."""
        return Population(self.line, self.shrinkage)

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Return arrays for a file, and a description for JSON."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        if self.item_titles is not None:
            arrays["item_titles"] = self.item_titles
        means = {"user_means": self.means.by_user, "item_means": self.means.by_item}
        about = {
            **{name: getattr(self, name) for name in _PLAIN},
            "pull": self.shrinkage,
            "scale": vars(self.scale),
            "is_simulated": self.is_simulated,
            "cost": None if self.counted_cost is None else vars(self.counted_cost),
            "overall_mean": self.means.overall,
        }
        return arrays | means | members_to_arrays(self.members), about

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array], about: dict[str, Any]) -> Self:
        """Build the result from what `to_arrays` returned."""
        rest: dict[str, Any] = {name: about[name] for name in _PLAIN}
        rest |= {name: arrays[name] for name in _ARRAYS}
        return cls(
            item_titles=arrays.get("item_titles"),
            counted_cost=None if about["is_simulated"] else Cost(**about["cost"]),
            shrinkage=about["pull"],
            scale=RatingScale(**about["scale"]),
            means=RatingMeans(about["overall_mean"], arrays["user_means"], arrays["item_means"]),
            members=members_from_arrays(arrays),
            **rest,
        )


def _some_of(ids: Array, most: int = 5) -> str:
    """The first few ids, as a Python user writes them."""
    more = len(ids) - most
    return ", ".join(map(repr, ids[:most].tolist())) + (f" and {more:,} more" if more > 0 else "")


def _codes(known: Array, ids: Array) -> Array:
    if ids is known:
        return np.arange(len(known))
    try:
        wanted = ids.astype(known.dtype if known.dtype.kind != "U" else np.str_)
    except (ValueError, OverflowError):  # text that is no number, or one that is too large
        code_of = {str(value): code for code, value in enumerate(known)}
        return np.array([code_of.get(str(value), len(known)) for value in ids])
    at = np.searchsorted(known, wanted)
    found = known[np.minimum(at, len(known) - 1)] == wanted
    return np.where(found, at, len(known))
