"""What a privacy budget costs in accuracy: the same training without noise, or with other epsilons.

These trainings see all ratings, and so does whoever reads their errors: they are outside epsilon.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedmmf.data import Ratings
from fedmmf.model.estimator import FedMMF
from fedmmf.progress import Report, quiet
from fedmmf.reports.results import TrainResult
from fedmmf.reports.spending import CostPoint, PrivacyCost
from fedmmf.settings import Settings

CHEAP = 30_000_000  # ratings times rounds of a second training that nobody has to ask for


def without_noise(settings: Settings) -> Settings:
    """Return the settings of the same training without a privacy budget.

    Solver, mask and objective stay. What nobody named takes the defaults that it has without noise.
    """
    usual = type(settings).model_fields
    budget = {name: usual[name].default for name in settings.named() if name.startswith("dp_")}
    same = {"solver": settings.solver, "objective": settings.objective}
    return settings.changed(**same, **budget, aggregation=usual["aggregation"].default)


def is_cheap(training: Ratings, without: Settings) -> bool:
    """Whether a training without noise takes no longer than people wait without being asked."""
    return training.n_ratings * without.max_rounds * without.ensemble <= CHEAP


@dataclass(frozen=True, eq=False)
class Comparison:
    """Trainings that are compared: on the same ratings, and judged by the same test.

    Attributes:
        training: what is trained on.
        testing: what is tested on.
        top: length of the lists that are judged; None: as the settings' objective has it.
        relevant_from: the rating from which on an item is relevant.
        progress: told how far each training is.
    """

    training: Ratings
    testing: Ratings
    top: int | None = None
    relevant_from: float | None = None
    progress: Report = quiet

    def cost(
        self, found: TrainResult, settings: Settings, without: Settings, curve: Sequence[float]
    ) -> PrivacyCost:
        """Train without noise, and with every epsilon of the curve but that of the run itself.

        Args:
            found: result of the run.
            settings: of the run.
            without: of the training without noise.
            curve: epsilons.
        """
        here = CostPoint(epsilon=settings.dp_epsilon, rmse=found.rmse, ndcg_at_10=found.ndcg)
        plain = self._judged(without)
        points = [
            here
            if epsilon == settings.dp_epsilon
            else self._point(settings.changed(dp_epsilon=epsilon))
            for epsilon in sorted(set(curve))
        ]
        return PrivacyCost(
            epsilon=here.epsilon,
            rmse=here.rmse,
            ndcg_at_10=here.ndcg_at_10,
            rmse_without=plain.rmse,
            ndcg_at_10_without=plain.ndcg,
            without=f"{without.solver}, {without.factors} factors, {without.max_rounds} rounds",
            curve=tuple(points),
        )

    def _point(self, settings: Settings) -> CostPoint:
        found = self._judged(settings)
        return CostPoint(epsilon=settings.dp_epsilon, rmse=found.rmse, ndcg_at_10=found.ndcg)

    def _judged(self, settings: Settings) -> TrainResult:
        model = FedMMF(**settings.model_dump()).fit(self.training, progress=self.progress)
        return model.summary(
            self.testing, top=self.top, relevant_from=self.relevant_from, progress=self.progress
        )
