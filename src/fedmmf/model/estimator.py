"""`FedMMF`: the estimator. Fit, predict, recommend, evaluate, save, load."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from fedmmf import __version__, checkpoint
from fedmmf.arrays import Array
from fedmmf.checkpoint import Held
from fedmmf.config import Settings
from fedmmf.data import Ratings
from fedmmf.errors import CheckpointError, NotFittedError, SettingsError
from fedmmf.masks.indicator import j_follows_variance, mean_relative_j, privacy_groups
from fedmmf.model.accuracy import Accuracy, evaluated
from fedmmf.model.checking import DAMAGED, require_sound
from fedmmf.model.learned import Learned
from fedmmf.model.lists import Id, Ids, ListRequest, lists_for
from fedmmf.model.newcomer import Newcomer, own_ratings, welcome
from fedmmf.model.summary import summarize
from fedmmf.results import PrivacyGroups, ProtocolCost, RoundTraffic, TradeoffPoint, TrainResult
from fedmmf.scale import RatingScale
from fedmmf.simulation import Progress, no_progress, train, train_real
from fedmmf.simulation.costs import RoundSizes, cost_input, tradeoff
from fedmmf.solvers.vb.form import MOST_COLUMNS
from fedmmf.sums.costs import CostInput

_SPANS = (1e-3, 1e4)  # of the ratings' scale, that sums of `vb` have digits for


class FedMMF:
    """Federated masked matrix factorization, simulated in one process.

    Its settings are those of `fedmmf.config.Settings`; unknown ones are refused. A fitted model
    holds every simulated party's mask and factors, so treat it and its file as you would treat the
    ratings.

    Example:
        >>> from fedmmf import FedMMF, load
        >>> train, test = load("synthetic").split(test=0.2, seed=0)
        >>> model = FedMMF(mask="mean", rounds=50).fit(train)
        >>> sorted(model.evaluate(test))
        ['mae', 'rmse']
    """

    def __init__(self, **settings: Any) -> None:
        self._settings = Settings.checked(**settings)
        self._learned: Learned | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings; `FedMMF(**model.get_params())` is an unfitted copy."""
        return self._settings.model_dump()

    def set_params(self, **settings: Any) -> Self:
        """Change settings; what was learned with the old ones is forgotten."""
        self._settings = self._settings.changed(**settings)
        self._learned = None
        return self

    def __repr__(self) -> str:
        defaults = Settings().model_dump()
        changed = {key: value for key, value in self.get_params().items() if value != defaults[key]}
        return f"FedMMF({', '.join(f'{key}={value!r}' for key, value in changed.items())})"

    @property
    def settings(self) -> Settings:
        """The settings, validated."""
        return self._settings

    @property
    def learned(self) -> Learned:
        """What fitting found."""
        if self._learned is None:
            raise NotFittedError("this FedMMF is not fitted yet; call fit(ratings) first")
        return self._learned

    @property
    def item_factors(self) -> Array:
        """q_i. (n_items, k)."""
        return self.learned.item_factors[:-1]

    @property
    def user_factors(self) -> Array:
        """p_u, each private to its party. (n_users, k)."""
        return self.learned.user_factors[:-1]

    def fit(
        self,
        ratings: Ratings,
        *,
        progress: Progress = no_progress,
        checkpoint: str | Path | Held | None = None,
        real: bool = False,
    ) -> Self:
        """Train masks and factors on the ratings.

        Args:
            ratings: what to train on, with item features for the masks lr, fm and nn.
            progress: called with (stage, done, total) as the work goes on.
            checkpoint: a file to write now and then; where it exists, training continues from it.
                It is deleted in the end; that of a `Held` is not.
            real: run every party and every message of the protocols instead of the simulation:
                the same result, slowly.
        """
        path = Path(checkpoint) if isinstance(checkpoint, str) else checkpoint
        _require_ratings(ratings, self._settings)
        if real and path is not None:
            raise SettingsError("a real run keeps no checkpoint; leave one of the two out")
        if real:
            trained = train_real(ratings, self._settings, progress)
        else:
            trained = train(ratings, self._settings, progress=progress, checkpoint_file=path)
        self._learned = Learned.of(trained, ratings, self._settings)
        return self

    def predict(self, users: Any, items: Any) -> Array:
        """Predict the rating of each (user, item) pair, clipped to the scale. (n,).

        With the objective `ranking` it is a score: higher is better, and it is no rating.

        An unknown user is predicted as somebody at the start of training: what a mean user rates
        plus what the item factors say of the item. An unknown item is predicted by the user's mask
        for an average item. Both unknown: what a mean user rates.
        """
        users, items = np.atleast_1d(users), np.atleast_1d(items)
        if users.shape != items.shape or users.ndim != 1:
            raise SettingsError(
                f"users and items must be lists of one length; got {users.shape} and {items.shape}"
            )
        return self.learned.predict(self.learned.user_codes(users), self.learned.item_codes(items))

    def evaluate(
        self,
        test: Ratings,
        *,
        top: int | None = None,
        relevant_from: float | None = None,
        progress: Progress = no_progress,
    ) -> Accuracy:
        """RMSE and MAE over the pairs of `test`, and with `top` also `ranking`, a `RankingScores`.

        A model with the objective `ranking` predicts no ratings: it has `ranking` alone.

        Lists are ranked before clipping, from all items that a user has not rated in training, and
        stand beside those of the most popular items. Means are over the users who have something
        relevant in `test`.

        Args:
            test: ratings that were not trained on.
            top: also rank, and score the first so many items.
            relevant_from: the rating from which on an item is relevant; None: three quarters of the
                way up the scale, which are 4 and 5 of 5.
            progress: called with ("lists", done, total) while lists are made.
        """
        return evaluated(self.learned, test, top, relevant_from, progress)

    def recommend(
        self,
        user: Id | None = None,
        n: int = 10,
        *,
        users: Ids | None = None,
        candidates: Ids | None = None,
        exclude: Ids = (),
        seen: bool = False,
    ) -> pl.DataFrame:
        """The n items with the highest scores for one user, or for each of several.

        Scores are predictions before they are clipped to the scale; equal ones are in the order of
        the items. Where fewer than n items are left, lists are shorter.

        Args:
            user: one user's id: gives columns item_id, title (if known) and prediction.
            n: how many items, at most.
            users: ids of several users instead: their lists one below the other, with user_id and
                rank before the other columns.
            candidates: ids of the items to choose from; None: the whole catalogue.
            exclude: ids of items to leave out.
            seen: whether items that a user has rated may be in the list.
        """
        wanted = ListRequest.checked(self.learned, n, candidates, exclude, seen)
        if users is not None and user is None:
            return lists_for(self.learned, users, wanted)
        if user is not None and users is None:
            return lists_for(self.learned, [user], wanted).drop("user_id", "rank")
        raise SettingsError(
            "recommend needs user=ID for one list or users=[ID, ...] for several; got "
            f"{'neither' if user is None else 'both'}"
        )

    def join(self, ratings: Mapping[Id, float] | Ids | Any) -> "Newcomer":
        """Welcome a user after training: a mask from own ratings, p_u from the fixed item factors.

        Args:
            ratings: rating by item id; or a frame with the columns item_id and rating; or, of a
                model that was trained without ratings, the items alone.
        """
        return welcome(self.learned, self._settings, own_ratings(self.learned, ratings))

    def traffic(self) -> RoundTraffic:
        """Bytes that a user sends and receives per round, on average, as `wire` encodes them.

        Of the rounds alone: worked out from the messages, or counted where every party was real.
        """
        cost = self.learned.cost
        return RoundTraffic(
            up_bytes_per_user_round=round(cost.up_bytes, 1),
            down_bytes_per_user_round=round(cost.down_bytes, 1),
        )

    def cost(self) -> ProtocolCost:
        """CPU seconds per round: of the protocol alone, by the model of `fedmmf bench costs`.

        Where every party was real, those that were counted, of all that either side does.
        """
        cost = self.learned.cost
        return ProtocolCost(party_cpu_s=cost.party_s, server_cpu_s=cost.server_s, how=cost.how)

    def tradeoff(self) -> tuple[TradeoffPoint, ...]:
        """What other values of threshold_j would give under adaptive sharing."""
        return tradeoff(self._cost_input(), self.learned.j_train)

    def _cost_input(self) -> CostInput:
        learned = self.learned
        per_user, n_clear = learned.n_training / learned.n_users, int(learned.in_clear.sum())
        sizes = RoundSizes(learned.form, learned.n_summed, learned.scale.span)
        return cost_input(self._settings, sizes, learned.n_users, per_user, n_clear)

    def privacy(self) -> PrivacyGroups:
        """The two groups of Algorithm 1: secure iff J <= threshold_j, J on the training ratings.

        A small J is no protection: see docs/errata.md, 13.
        """
        learned = self.learned
        is_known = np.isfinite(learned.j_out_of_fold)
        out_of_fold = learned.j_out_of_fold[is_known]
        return PrivacyGroups(
            **privacy_groups(learned.j_train, self._settings.threshold_j),
            mean_j_out_of_fold=float(out_of_fold.mean()) if is_known.any() else None,
            mean_relative_j=mean_relative_j(learned.j_train, learned.variances),
            j_follows_variance=j_follows_variance(learned.j_train, learned.variances),
            users_in_clear=int(learned.in_clear.sum()),
            items_left_out=learned.n_left_out,
        )

    def summary(
        self,
        test: Ratings | None = None,
        *,
        top: int | None = None,
        relevant_from: float | None = None,
        total_seconds: float | None = None,
        progress: Progress = no_progress,
    ) -> TrainResult:
        """Everything that a training run reports, as `fedmmf train --json` prints it.

        Args:
            test: what to test the model on; None: nothing.
            top: also rank, as `evaluate` does, and so `relevant_from` and `progress`.
            relevant_from: the rating from which on an item is relevant.
            total_seconds: of the whole job; None: of masks and rounds.
            progress: called while lists are made.
        """
        accuracy = None
        if test is not None:
            accuracy = self.evaluate(test, top=top, relevant_from=relevant_from, progress=progress)
        return summarize(self, test, accuracy, total_seconds)

    def save(self, path: str | Path) -> None:
        """Write the model to one file. It holds private parts of every simulated party."""
        arrays, about = self.learned.to_arrays()
        meta = {"kind": "model", "version": __version__, "settings": self.get_params(), **about}
        checkpoint.save(Path(path), arrays, meta)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote."""
        arrays, meta = checkpoint.load(Path(path), "model")
        try:
            model = cls(**meta["settings"])
            model._learned = Learned.from_arrays(arrays, meta)
            require_sound(model._learned)
        except KeyError as missing:
            raise CheckpointError(
                f"{path} was written by another version of fedmmf, {meta.get('version')}: it has "
                f"no {missing}; fit the model again"
            ) from None
        except DAMAGED as error:
            raise CheckpointError(
                f"{path} is damaged, or was not written by fedmmf: {error}; fit the model again"
            ) from None
        return model


def _require_usual(scale: RatingScale, settings: Settings) -> None:
    """Refuse scales and values for which the numbers of `vb` have no room, or no meaning."""
    value, least = settings.unrated_value, scale.min - scale.span
    if value != "auto" and not least <= value <= scale.max:
        raise SettingsError(
            f"unrated_value is a low rating, between {least:g} and {scale.max:g} on the scale "
            f"{scale}; got {value:g}"
        )
    if settings.solver == "vb" and not _SPANS[0] <= scale.span <= _SPANS[1]:
        raise SettingsError(
            f"solver 'vb' needs ratings with a span between {_SPANS[0]:g} and {_SPANS[1]:g}; "
            f"{scale} has {scale.span:g}. Divide the ratings, or use solver 'sgd'"
        )


def _require_ratings(ratings: Ratings, settings: Settings) -> None:
    """Refuse to predict what nobody has said, and levels that are none."""
    if ratings.is_implicit and settings.objective == "rating":
        raise SettingsError(
            f"{ratings.name!r} has no ratings to predict, only what was chosen; rank instead: "
            "objective 'ranking', mask 'none' (--objective ranking --mask none)"
        )
    _require_usual(ratings.scale, settings)
    if settings.likelihood == "ordinal" and ratings.scale.n_levels > MOST_COLUMNS:
        raise SettingsError(
            f"likelihood 'ordinal' needs a scale of {MOST_COLUMNS:,} levels at most; "
            f"{ratings.scale} has {ratings.scale.n_levels:,}"
        )


FedMMF.__signature__ = inspect.signature(Settings)  # type: ignore[attr-defined]
