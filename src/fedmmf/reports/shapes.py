"""What a report reads from a run's JSON; all that may be missing is optional here.

Keys that are not listed are left alone, so that a report can be made of a newer run.
"""

import math
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, FiniteFloat, model_validator

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]


class Privacy(BaseModel):
    """How many users are on which side of threshold_j."""

    threshold_j: FiniteFloat
    secure_users: Count
    insecure_users: Count
    mean_j: FiniteFloat | None = None
    mean_j_out_of_fold: FiniteFloat | None = None

    @property
    def n_users(self) -> int:
        """Everybody."""
        return self.secure_users + self.insecure_users


class Traffic(BaseModel):
    """Bytes of one user in one round."""

    up_bytes_per_user_round: FiniteFloat
    down_bytes_per_user_round: FiniteFloat


class Baseline(BaseModel):
    """A simpler prediction of the same test ratings."""

    name: str
    rmse: FiniteFloat
    mae: FiniteFloat | None = None


class Histogram(BaseModel):
    """The privacy indicator over users."""

    edges: list[FiniteFloat] = Field(min_length=2)  # (n_bins + 1,)
    counts: list[Count] = Field(min_length=1)  # (n_bins,)
    mean: FiniteFloat | None = None

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if len(self.edges) != len(self.counts) + 1:
            raise ValueError(
                f"{len(self.counts)} counts need {len(self.counts) + 1} edges; "
                f"got {len(self.edges)}"
            )
        return self


class TradeoffPoint(BaseModel):
    """What one threshold_j would bring."""

    threshold_j: FiniteFloat
    share_in_clear: Share
    up_bytes_per_user_round: FiniteFloat | None = None
    recovered_share: Share | None = None

    @property
    def up_kilobytes(self) -> float | None:
        """The same traffic in kB."""
        up = self.up_bytes_per_user_round
        return None if up is None else up / 1e3


class Cost(BaseModel):
    """CPU seconds of one round."""

    party_cpu_s: FiniteFloat
    server_cpu_s: FiniteFloat
    how: str = ""


class Train(BaseModel):
    """What `fedmmf train --json` prints."""

    data: str
    settings: dict[str, Any]
    privacy: Privacy
    mask: str = ""
    solver: str = ""
    synthetic: bool = False
    rmse: FiniteFloat | None = None
    mae: FiniteFloat | None = None
    ndcg: FiniteFloat | None = None
    recall: FiniteFloat | None = None
    test_fraction: Share | None = None
    n_users: Count | None = None
    n_items: Count | None = None
    n_ratings: Count | None = None
    rounds: Count | None = None
    best_round: Count | None = None
    seconds: dict[str, FiniteFloat] = {}
    traffic: Traffic | None = None
    baselines: list[Baseline] = []
    history: list[FiniteFloat | None] = []
    j: Histogram | None = None
    tradeoff: list[TradeoffPoint] = []
    cost: Cost | None = None
    version: str = ""
    versions: dict[str, str] = {}  # of what the run was made with

    @property
    def model_name(self) -> str:
        """Mask and solver in words."""
        return f"mask {self.mask or '?'}, solver {self.solver or '?'}"


class Item(BaseModel):
    """One recommended item."""

    item_id: int | str
    prediction: FiniteFloat
    title: str | None = None


class Recommended(BaseModel):
    """Items for one user of a demo."""

    user: int | str
    model: str = ""
    recommendations: list[Item]


class Attack(BaseModel):
    """How well one attack did over the users it was tried on."""

    name: str
    mean: FiniteFloat
    baseline_mean: FiniteFloat | None = None
    interval: tuple[FiniteFloat, FiniteFloat] | None = None
    quantiles: dict[str, FiniteFloat] = {}
    n_users: Count | None = None
    knows: str = ""
    outputs: str = ""
    measure: str = ""


class Grouping(BaseModel):
    """How many users each rule would let share in the clear."""

    by_indicator: Count
    by_audit: Count
    exposed_by_indicator: Count


class Audit(BaseModel):
    """What `fedmmf audit --json` prints."""

    groups: dict[str, list[Attack]]  # on masked ratings, by how the users share
    messages: dict[str, list[Attack]] = {}  # on messages of real parties, by kind of message
    sentences: list[str] = []
    verdicts: dict[str, str] = {}  # by how the users share
    grouping: Grouping | None = None
    privacy: Privacy | None = None
    j: Histogram | None = None
    tradeoff: list[TradeoffPoint] = []
    audit_limit: Share | None = None
    settings: dict[str, Any] = {}
    data: str = ""
    synthetic: bool = False
    version: str = ""
    versions: dict[str, str] = {}  # of what the run was made with


class Run(BaseModel):
    """Everything that one report is about."""

    trained: list[Train] = []
    recommended: Recommended | None = None
    audit: Audit | None = None

    @property
    def best(self) -> Train | None:
        """The run with the least RMSE; the first where none was tested."""
        return min(self.trained, key=_error, default=None)


def _error(run: Train) -> float:
    return math.inf if run.rmse is None else run.rmse
