"""`FedMMF`: the estimator. Fit, predict, recommend, evaluate, save, load."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from fedmmf import __version__, checkpoint, evaluation, federation, simulation
from fedmmf.arrays import Array
from fedmmf.config import Settings
from fedmmf.data import Ratings
from fedmmf.errors import DataError, NotFittedError, SettingsError
from fedmmf.learned import Learned
from fedmmf.masks.indicator import privacy_groups
from fedmmf.party import Party
from fedmmf.traffic import Shape, Traffic
from fedmmf.training import Progress, no_progress, train

Id = int | str
RELEVANT_FROM = 0.75  # of the way up the scale: 4 and 5 of 5 stars


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
        checkpoint: str | Path | None = None,
        real: bool = False,
    ) -> Self:
        """Train masks and factors on the ratings.

        Args:
            ratings: what to train on, with item features for the masks lr, fm and nn.
            progress: called with (stage, done, total) as the work goes on.
            checkpoint: a file to write now and then; where it exists, training continues from it.
            real: run every party and every message of the protocols instead of the simulation:
                the same result, slowly.
        """
        path = None if checkpoint is None else Path(checkpoint)
        if real and path is not None:
            raise SettingsError("a real run keeps no checkpoint; leave one of the two out")
        if real:
            trained = federation.train(ratings, self._settings, progress=progress)
        else:
            trained = train(ratings, self._settings, progress=progress, checkpoint_file=path)
        self._learned = Learned.of(trained, ratings, self._settings.solver)
        return self

    def predict(self, users: Any, items: Any) -> Array:
        """Predict the rating of each (user, item) pair, clipped to the scale. (n,).

        An unknown user is predicted as somebody at the start of training: the scale's midpoint plus
        what the item factors say of the item. An unknown item is predicted by the user's mask for
        an average item. Both unknown: the scale's midpoint.
        """
        users, items = np.atleast_1d(users), np.atleast_1d(items)
        if users.shape != items.shape or users.ndim != 1:
            raise SettingsError(
                f"users and items must be lists of one length; got {users.shape} and {items.shape}"
            )
        return self.learned.predict(self.learned.user_codes(users), self.learned.item_codes(items))

    def evaluate(self, test: Ratings, *, top: int | None = None) -> dict[str, float]:
        """RMSE and MAE over the pairs of `test`.

        With `top`, also NDCG and recall of that many recommendations, mean over the users who have
        something relevant in `test`: a rating in the upper quarter of the scale.
        """
        learned = self.learned
        users = learned.user_codes(test.user_ids)[test.user_codes]
        items = learned.item_codes(test.item_ids)[test.item_codes]
        predicted = learned.predict(users, items)
        scores = {
            "rmse": evaluation.rmse(test.values, predicted),
            "mae": evaluation.mae(test.values, predicted),
        }
        return scores if top is None else scores | self._evaluate_ranking(test, users, items, top)

    def _evaluate_ranking(
        self, test: Ratings, users: Array, items: Array, top: int
    ) -> dict[str, float]:
        learned = self.learned
        is_good = self.learned.scale.to_unit(test.values) >= RELEVANT_FROM
        is_good &= (users < learned.n_users) & (items < learned.n_items)
        lists = []
        for user in np.unique(users[is_good]):
            relevant = np.zeros(learned.n_items)
            relevant[items[is_good & (users == user)]] = 1.0
            order = _ranked(learned.predict_all(user), learned.rated_by(user))
            lists.append(relevant[order])
        return {
            "ndcg": float(np.mean([evaluation.ndcg(gains, top) for gains in lists])),
            "recall": float(np.mean([evaluation.recall(gains, top) for gains in lists])),
        }

    def recommend(self, user: Id, n: int = 10) -> pl.DataFrame:
        """The n items, not yet rated by the user, with the highest predictions."""
        learned = self.learned
        code = learned.known_user_code(user)
        scores = learned.predict_all(code)  # (n_items,)
        return _best(learned, scores, learned.rated_by(code), n)

    def join(self, ratings: Mapping[Id, float]) -> "Newcomer":
        """Welcome a user after training: a mask from own ratings, p_u from the fixed item factors.

        Args:
            ratings: rating by item id.
        """
        learned, settings = self.learned, self._settings
        ids = np.array(list(ratings))
        codes = learned.item_codes(ids)
        if not ratings or (codes == learned.n_items).any():
            unknown = [
                str(item) for item, code in zip(ids, codes, strict=True) if code == learned.n_items
            ]
            known = learned.item_ids[0].item()
            raise DataError(
                f"a newcomer needs ratings of known items (such as {known!r}); "
                f"unknown: {', '.join(unknown[:5]) or 'none, but no rating was given'}"
            )
        order = np.argsort(codes)
        values = np.array(list(ratings.values()), np.float32)[order]
        learned.check_on_scale(values)
        party = Party(
            codes[order],
            values,
            learned.scale,
            learned.features[:-1],
            mask=settings.mask,
            mask_strength=settings.mask_strength,
            cross_fit=settings.cross_fit,
            folds=settings.folds,
            stream=simulation.mask_stream(settings.seed, "newcomer"),
        )
        return Newcomer(learned, party)

    def traffic(self) -> dict[str, float]:
        """Bytes that a party sends and receives per round, on average, as `wire` encodes them.

        Counted where the run was real; else worked out from the same messages.
        """
        found = self.learned.counted or self._expected_traffic()
        return {
            "up_bytes_per_user_round": round(found.up_bytes, 1),
            "down_bytes_per_user_round": round(found.down_bytes, 1),
        }

    def cost(self) -> dict[str, Any]:
        """CPU seconds per round of the protocol alone, on the machine of `benchmarks/costs.py`."""
        expected = self._expected_traffic()
        return {
            "party_cpu_s": expected.party_cpu_s,
            "server_cpu_s": expected.server_cpu_s,
            "how": expected.how,
        }

    def tradeoff(self) -> list[dict[str, Any]]:
        """What other values of threshold_j would give under adaptive sharing."""
        return self._shape().tradeoff(self.learned.j_train)

    def _expected_traffic(self) -> Traffic:
        return self._shape().expected(int(self.learned.in_clear.sum()))

    def _shape(self) -> Shape:
        learned = self.learned
        per_user = learned.n_training / learned.n_users
        public, span = learned.members[0].public, learned.scale.span
        return Shape(self._settings, public, learned.n_users, per_user, span)

    def privacy(self) -> dict[str, float | int]:
        """The two groups of Algorithm 1: secure iff J <= threshold_j, J on the training ratings.

        A small J is no protection: see docs/errata.md, 13.
        """
        return {
            **privacy_groups(self.learned.j_train, self._settings.threshold_j),
            "mean_j_out_of_fold": float(np.nanmean(self.learned.j_out_of_fold)),
            "users_in_clear": int(self.learned.in_clear.sum()),
        }

    def save(self, path: str | Path) -> None:
        """Write the model to one file. It holds private parts of every simulated party."""
        arrays, about = self.learned.to_arrays()
        meta = {"kind": "model", "version": __version__, "settings": self.get_params(), **about}
        checkpoint.save(Path(path), arrays, meta)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model that `save` wrote."""
        arrays, meta = checkpoint.load(Path(path), "model")
        model = cls(**meta["settings"])
        model._learned = Learned.from_arrays(arrays, meta)
        return model


FedMMF.__signature__ = inspect.signature(Settings)  # type: ignore[attr-defined]


class Newcomer:
    """A user who joined after training."""

    def __init__(self, learned: Learned, party: Party) -> None:
        self._learned = learned
        self._party = party

    def predict(self, items: Any) -> Array:
        """Predicted ratings of items, by id; unknown items are refused. (n,)."""
        codes = self._learned.item_codes(np.atleast_1d(items))
        if (codes == self._learned.n_items).any():
            raise DataError("a newcomer's predictions are for items of the model; some are unknown")
        return self._predict(codes)

    def recommend(self, n: int = 10) -> pl.DataFrame:
        """The n items, not yet rated, with the highest predictions."""
        scores = self._predict(np.arange(self._learned.n_items))
        return _best(self._learned, scores, self._party.items, n)

    def _predict(self, codes: Array) -> Array:
        """Mean of the members' predictions, each with the p_u that its item factors call for."""
        predictions = []
        for member in self._learned.members:
            self._party.join_late(self._learned.solver, member.public)
            predictions.append(self._party.predict(codes))
        return np.asarray(np.mean(predictions, axis=0))


def _ranked(scores: Array, rated: Array) -> Array:
    """Items that are not rated, best first; ties (many, at the scale's top) by their code."""
    is_open = np.ones(len(scores), bool)
    is_open[rated] = False
    candidates = np.flatnonzero(is_open)
    return candidates[np.argsort(-scores[candidates], kind="stable")]


def _best(learned: Learned, scores: Array, rated: Array, n: int) -> pl.DataFrame:
    if n < 1:
        raise SettingsError(f"n must be at least 1; got {n}")
    top = _ranked(scores, rated)[:n]
    columns: dict[str, Array] = {"item_id": learned.item_ids[top]}
    if learned.item_titles is not None:
        columns["title"] = learned.item_titles[top]
    return pl.DataFrame(columns | {"prediction": scores[top]})
