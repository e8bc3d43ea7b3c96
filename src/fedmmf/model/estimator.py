"""`FedMMF`: the estimator. Fit, predict, recommend, evaluate, save, load."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from fedmmf import __version__
from fedmmf.aggregation.simulated import Cost, CostInput
from fedmmf.arrays import Array
from fedmmf.data.adapters import pairs_of, ratings_of
from fedmmf.data.ids import as_ids, is_many
from fedmmf.data.scales import ScaleLike
from fedmmf.errors import CheckpointError, NotFittedError, SettingsError
from fedmmf.masks import FAMILIES
from fedmmf.masks.fitting import resolve_mask
from fedmmf.masks.indicator import j_follows_variance, mean_relative_j, privacy_groups
from fedmmf.model.accuracy import Accuracy, evaluated
from fedmmf.model.checking import DAMAGED, require_sound
from fedmmf.model.describing import short_signature, with_settings, with_the_parameters_of
from fedmmf.model.display import html_of
from fedmmf.model.learned import Learned
from fedmmf.model.lists import Id, Ids, ListRequest, lists_for, warn, what_ranks
from fedmmf.model.newcomer import Newcomer, own_ratings, welcome
from fedmmf.model.preconditions import require_ratings, test_of
from fedmmf.model.sklearn_side import SklearnSide
from fedmmf.model.summary import summarize
from fedmmf.progress import Watching, watched
from fedmmf.reports.list_scores import RankingScores
from fedmmf.reports.results import (
    PrivacyGroups,
    ProtocolCost,
    RoundTraffic,
    TradeoffPoint,
    TrainResult,
)
from fedmmf.settings import Settings
from fedmmf.simulation import train, train_real
from fedmmf.simulation.costs import RoundSizes, cost_input, expected_cost, tradeoff
from fedmmf.storage import checkpoints
from fedmmf.storage.checkpoints import Checkpoint

log = logging.getLogger("fedmmf.model")


class FedMMF(SklearnSide):
    """Federated masked matrix factorization, simulated in one process.

    Unknown settings are refused, and so are values that do not fit together. A fitted model holds
    every simulated party's mask and factors, so treat it and its file as you would treat the
    ratings. It takes part in scikit-learn's searches and cross-validation.

    Editors and type checkers know the settings below that this package brings. Settings of another
    package's solver, mask or aggregation scheme are given by name as well. A type checker does not
    know these: hand them over as `FedMMF(solver="theirs", **{"their_setting": 3})`.

    A solver that nobody named follows from the objective: `sgd`, or `vb` for lists. One that was
    named stays, also in `set_params`, and is refused where it does not fit.

    Examples:
        >>> from fedmmf import FedMMF, load
        >>> train, test = load("synthetic").split(test=0.2, seed=0)
        >>> model = FedMMF(mask="mean", rounds=50).fit(train)
        >>> sorted(model.evaluate(test))
        ['mae', 'rmse']
    """

    _list_scores: RankingScores | None = None
    _has_warned = False  # of lists that are ranked by predicted ratings

    @with_the_parameters_of(Settings)
    def __init__(self, **settings: Any) -> None:
        self._asked = self._settings = Settings.checked(**settings)
        self._learned: Learned | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings; `FedMMF(**model.get_params())` is an unfitted copy."""
        return self._asked.model_dump()

    def set_params(self, **settings: Any) -> Self:
        """Change settings; what was learned with the old ones is forgotten."""
        self._asked = self._settings = self._asked.changed(**settings)
        self._learned = None
        return self

    def __repr__(self) -> str:
        defaults = Settings().model_dump()
        changed = {key: value for key, value in self.get_params().items() if value != defaults[key]}
        return f"FedMMF({', '.join(f'{key}={value!r}' for key, value in changed.items())})"

    def _repr_html_(self) -> str:
        return html_of(self)

    @property
    def settings(self) -> Settings:
        """The settings, validated; those of the fit, once there is one, with the mask it had."""
        return self._settings

    @property
    def learned(self) -> Learned:
        """Result of fitting; raises `NotFittedError` before `fit`."""
        if self._learned is None:
            raise NotFittedError("this FedMMF is not fitted yet; call fit(ratings) first")
        return self._learned

    @property
    def item_factors(self) -> Array:
        """Item factors q_i of all known items. (n_items, k)."""
        return self.learned.item_factors[:-1]

    @property
    def user_factors(self) -> Array:
        """User factors p_u, each private to its party. (n_users, k)."""
        return self.learned.user_factors[:-1]

    @property
    def list_scores(self) -> RankingScores | None:
        """How good lists were when `evaluate` last made some; None: it never did since the fit."""
        return self._list_scores

    def fit(
        self,
        ratings: Any,
        y: Any = None,
        *,
        scale: ScaleLike | None = None,
        progress: Watching = None,
        checkpoint: str | Path | Checkpoint | None = None,
        real: bool = False,
    ) -> Self:
        """Train masks and factors on the ratings.

        Args:
            ratings: what to train on: `Ratings`, which may have item features for the masks lr, fm
                and nn (without them the mask `auto` is the user's mean, and one line says so); a
                pandas or polars frame with user_id, item_id and rating; a scipy sparse matrix,
                whose rows are users and whose stored zeros are left out; or a LensKit dataset.
                With `y`: pairs of user and item, an array (n, 2) or a frame.
            y: the ratings of the pairs, as scikit-learn hands them over. (n,)
            scale: of the ratings, as (1, 5), where they are no `Ratings`; None: found in them.
            progress: True: bars; or a function, called with (stage, done, total).
            checkpoint: a file to write now and then; where it exists, training continues from it.
                It is deleted in the end; that of a `Held` is not.
            real: run every party and every message of the protocols instead of the simulation:
                the same result, slowly.
        """
        path = Path(checkpoint) if isinstance(checkpoint, str) else checkpoint
        found = ratings_of(ratings, y, scale)
        require_ratings(found, self._asked)
        self._settings = resolve_mask(self._asked, has_features=found.has_features)
        mask = self._settings.mask
        if mask != self._asked.mask and not FAMILIES[mask].needs_features:
            log.warning("%s has no item features: the mask is the user's mean", found.name)
        if real and path is not None:
            raise SettingsError("a real run keeps no checkpoint; leave one of the two out")
        with watched(progress, found.name) as report:
            if real:
                trained = train_real(found, self._settings, report)
            else:
                trained = train(found, self._settings, progress=report, checkpoint_file=path)
        self._learned = Learned.of(trained, found, self._settings)
        self._list_scores, self._has_warned = None, False
        return self

    def predict(self, users: Any, items: Any = None) -> Array:
        """Predict the rating of each (user, item) pair, clipped to the scale. (n,).

        With the objective `ranking` it is a score: higher is better, and it is no rating.

        An unknown user is predicted as somebody at the start of training: what a mean user rates
        plus what the item factors say of the item. An unknown item is predicted by the user's mask
        for an average item. Both unknown: what a mean user rates.

        Args:
            users: ids, one for each pair; or the pairs: an array (n, 2), a frame with user_id and
                item_id, or `Ratings`.
            items: ids, one for each pair; None where `users` are pairs.
        """
        learned = self.learned
        if items is None:
            users, items = pairs_of(users)
        users, items = as_ids(users, "users"), as_ids(items, "items")
        if users.shape != items.shape:
            raise SettingsError(
                f"users and items must be lists of one length; got {users.shape} and {items.shape}"
            )
        return learned.predict(learned.user_codes(users), learned.item_codes(items))

    def evaluate(
        self,
        test: Any,
        *,
        top: int | None = None,
        relevant_from: float | None = None,
        progress: Watching = None,
    ) -> Accuracy:
        """RMSE and MAE over the pairs of `test`, and with `top` also `ranking`, a `RankingScores`.

        A model with the objective `ranking` predicts no ratings: it has `ranking` alone.

        Lists are ranked before clipping, from all items that a user has not rated in training, and
        stand beside those of the most popular items. Means are over the users who have something
        relevant in `test`.

        Args:
            test: ratings that were not trained on, in what `fit` takes them in.
            top: also rank, and score the first so many items.
            relevant_from: the rating from which on an item is relevant; None: three quarters of the
                way up the scale, which are 4 and 5 of 5.
            progress: True: bars; or a function, called with (stage, done, total), where the stages
                are "test ratings", "popular lists" and "lists".
        """
        learned = self.learned
        with watched(progress, "evaluate") as report:
            found = evaluated(learned, test_of(learned, test), top, relevant_from, report)
        self._list_scores = found.get("ranking", self._list_scores)
        return found

    def recommend(
        self,
        user: Ids | None = None,
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

        Lists of predicted ratings are poor: a `FedMMFWarning` says so once for a fitted model. The
        objective `ranking` is made for lists.

        Args:
            user: one user's id: gives columns item_id, title (if known) and prediction. Several
                are taken as `users`.
            n: how many items, at most.
            users: ids of several users instead: their lists one below the other, with user_id and
                rank before the other columns.
            candidates: ids of the items to choose from; None: the whole catalogue.
            exclude: ids of items to leave out.
            seen: whether items that a user has rated may be in the list.
        """
        wanted = ListRequest.checked(self.learned, n, candidates, exclude, seen)
        note = what_ranks(self._settings, self._list_scores)
        if note and not self._has_warned:
            self._has_warned = True
            warn(note)
        if user is not None and users is None:
            lists = lists_for(self.learned, user, wanted)
            # Not drop(): that is lazy, and polars' threads do not live on in a forked process.
            return lists if is_many(user) else pl.DataFrame(lists.get_columns()[2:])
        if users is not None and user is None:
            return lists_for(self.learned, users, wanted)
        raise SettingsError(
            "recommend needs user=ID for one list or users=[ID, ...] for several; got "
            f"{'neither' if user is None else 'both'}"
        )

    def join(self, ratings: Mapping[Id, float] | Ids | Any) -> "Newcomer":
        """Welcome a user after training: a mask from own ratings, p_u from the fixed item factors.

        Args:
            ratings: rating by item id; a pandas Series, whose index are the items; a frame with
                the columns item_id and rating, or a polars Series of both; or, of a model that was
                trained without ratings, the items alone.
        """
        return welcome(self.learned, self._settings, own_ratings(self.learned, ratings))

    def traffic(self) -> RoundTraffic:
        """Bytes that a user sends and receives per round, on average, as `wire` encodes them.

        Of the rounds alone: worked out from the messages, or counted where every party was real.
        """
        cost = self._round_cost()
        return RoundTraffic(
            up_bytes_per_user_round=round(cost.up_bytes, 1),
            down_bytes_per_user_round=round(cost.down_bytes, 1),
        )

    def cost(self) -> ProtocolCost:
        """CPU seconds per round: of the protocol alone, by the model of `fedmmf bench costs`.

        Where every party was real, those that were counted, of all that either side does.
        """
        cost = self._round_cost()
        return ProtocolCost(party_cpu_s=cost.party_s, server_cpu_s=cost.server_s, how=cost.how)

    def tradeoff(self) -> tuple[TradeoffPoint, ...]:
        """Effects of other values of threshold_j under adaptive sharing."""
        return tradeoff(self._cost_input(), self.learned.j_train)

    def _round_cost(self) -> Cost:
        return self.learned.counted_cost or expected_cost(self._cost_input())

    def _cost_input(self) -> CostInput:
        learned = self.learned
        per_user, n_clear = learned.n_training / learned.n_users, int(learned.in_clear.sum())
        sizes = RoundSizes(learned.update_shape, learned.n_summed, learned.scale.span)
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
        test: Any = None,
        *,
        top: int | None = None,
        relevant_from: float | None = None,
        total_seconds: float | None = None,
        progress: Watching = None,
    ) -> TrainResult:
        """Everything that a training run reports, as `fedmmf train --json` prints it.

        Args:
            test: what to test the model on; None: nothing.
            top: also rank, as `evaluate` does, and so `relevant_from` and `progress`.
            relevant_from: the rating from which on an item is relevant.
            total_seconds: of the whole job; None: of masks and rounds.
            progress: while lists are made, as `evaluate` takes it.
        """
        accuracy = None
        if test is not None:
            test = test_of(self.learned, test)
            accuracy = self.evaluate(test, top=top, relevant_from=relevant_from, progress=progress)
        return summarize(self, test, accuracy, total_seconds)

    def save(self, path: str | Path) -> None:
        """Write the model to one file. It holds private parts of every simulated party."""
        arrays, about = self.learned.to_arrays()
        meta = {
            "kind": "model",
            "version": __version__,
            "settings": self.settings.to_dict(),
            **about,
        }
        if self._list_scores is not None:
            meta["list_scores"] = self._list_scores.to_json_dict()
        checkpoints.save(Path(path), arrays, meta)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote."""
        arrays, meta = checkpoints.load(Path(path), "model")
        try:
            model = cls(**meta["settings"])
            model._learned = Learned.from_arrays(arrays, meta)
            require_sound(model._learned)
            if (scores := meta.get("list_scores")) is not None:
                model._list_scores = RankingScores.from_json_dict(scores)
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


FedMMF.__signature__ = short_signature()  # type: ignore[attr-defined]
FedMMF.__doc__ = with_settings(str(FedMMF.__doc__))
