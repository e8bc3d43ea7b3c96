"""What commands print, what models summarise and what reports show: one schema of typed results.

Results are frozen, and hold what JSON can hold: numpy's numbers become Python's when a result is
made, and figures that are not finite become None, so that what is printed is what is there. Unknown
keys are passed over, so that a newer run can be read; what version 0.1 did not print has a default.
"""

import math
import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Annotated, Any, Self

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    SerializerFunctionWrapHandler,
    ValidationError,
    computed_field,
    model_serializer,
    model_validator,
)

from fedmmf.errors import DataError

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Interval = tuple[FiniteFloat, FiniteFloat]
SIMULATED, REAL = "simulated: no message was sent", "real parties"


def _as_json_holds(value: Any) -> Any:
    """The same value without numpy, NaN and infinities; results inside it are left as they are."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _as_json_holds(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json_holds(part) for part in value]
    return value


class _Typed(BaseModel):
    """What all results share: how they are made, printed and read."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    def to_json_dict(self) -> dict[str, Any]:
        """Everything as JSON holds it; `from_json_dict` reads it back."""
        return self.model_dump(mode="json")

    @classmethod
    def from_json_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_json_dict` made, or what a command printed.

        Raises:
            DataError: a key is missing, or a value is not what its key promises.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise DataError(_explain(error)) from None

    @model_validator(mode="before")
    @classmethod
    def _take_plain_values(cls, values: Any) -> Any:
        return _as_json_holds(values)

    @model_serializer(mode="wrap")
    def _leave_out_what_was_not_said(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A null says that a figure has no value; one that nobody asked for is not there at all."""
        said = self.model_fields_set
        return {
            name: value for name, value in dump(self).items() if value is not None or name in said
        }


def _explain(error: ValidationError, most: int = 60) -> str:
    """The first mistake: where it is, the rule, and the beginning of what arrived."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"])) or "the result"
    if first["type"] == "value_error":  # a rule of ours, which says what arrived
        return f"{where}: {first['msg'].removeprefix('Value error, ')}"
    got = repr(first["input"])
    got = got if len(got) <= most else f"{got[:most]}..."
    return f"{where}: {first['msg']}; got {got}"


class PrivacyGroups(_Typed):
    """How many users are on which side of threshold_j, by their J on training ratings."""

    threshold_j: FiniteFloat
    secure_users: Count  # J <= threshold_j, the paper's rule
    insecure_users: Count
    mean_j: FiniteFloat | None
    mean_j_out_of_fold: FiniteFloat | None = None
    users_in_clear: Count | None = None  # who sent updates in the clear
    items_left_out: Count | None = None  # rated by too few for a sum that hides summands

    @property
    def n_users(self) -> int:
        """Everybody."""
        return self.secure_users + self.insecure_users


class PrivacySpent(_Typed):
    """What a run with differential privacy has spent: (epsilon, delta) of a whole user."""

    epsilon: FiniteFloat  # of the rounds that were used
    delta: FiniteFloat
    rounds_used: Count  # all runs of an ensemble together
    rounds_paid: Count  # after so many, parties stop
    epsilon_paid: FiniteFloat
    noise_multiplier: FiniteFloat  # standard deviation of the noise over the sensitivity
    clip: FiniteFloat  # largest length of a user's update
    noise: str
    added_by: str  # who adds the noise
    neighbours: str  # what epsilon compares
    not_covered: str  # what epsilon says nothing of


class RoundTraffic(_Typed):
    """Bytes of a mean user in one round, as messages are encoded for the wire."""

    up_bytes_per_user_round: FiniteFloat
    down_bytes_per_user_round: FiniteFloat


class ProtocolCost(_Typed):
    """CPU seconds of the protocol alone in one round, and where the figures come from."""

    party_cpu_s: FiniteFloat
    server_cpu_s: FiniteFloat
    how: str = ""


class StageSeconds(_Typed):
    """How long the parts of a run took."""

    mask: FiniteFloat
    train: FiniteFloat
    total: FiniteFloat


class BaselineAccuracy(_Typed):
    """A simpler prediction of the same test ratings."""

    name: str
    rmse: FiniteFloat
    mae: FiniteFloat | None = None


class RankingScores(_Typed):
    """How good lists of items are, mean over users who have something relevant to find."""

    ndcg_at_10: FiniteFloat | None
    recall_at_20: FiniteFloat | None
    hit_rate_at_10: FiniteFloat | None


class RankingAccuracy(RankingScores):
    """The lists of a run, beside one list for everybody: the most popular items."""

    popularity: RankingScores | None = None


class Histogram(_Typed):
    """The privacy indicator over users."""

    edges: tuple[FiniteFloat, ...] = Field(min_length=2)  # (n_bins + 1,)
    counts: tuple[Count, ...] = Field(min_length=1)  # (n_bins,)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        n_edges = len(self.counts) + 1
        if len(self.edges) != n_edges:
            raise ValueError(f"{n_edges - 1} counts need {n_edges} edges; got {len(self.edges)}")
        return self


class TradeoffPoint(_Typed):
    """What one threshold_j would bring under adaptive sharing."""

    threshold_j: FiniteFloat
    share_in_clear: Share
    up_bytes_per_user_round: FiniteFloat | None = None
    recovered_share: Share | None = None  # of all users; known to an audit alone


class _RunFacts(_Typed):
    """What a run was, whatever it found.

    Attributes:
        data: name of the ratings.
        synthetic: whether a program made the ratings up.
        simulated: False where every party and every message was real. A file that does not tell is
            taken as simulated, which claims less.
        settings: all of the run's settings.
        protection: what is hidden from whom under these settings, in sentences.
        version: of fedmmf.
        versions: of what else the run was made with.
    """

    data: str
    synthetic: bool = False
    simulated: bool = True
    settings: dict[str, Any] = Field(repr=False)
    protection: tuple[str, ...] = Field((), repr=False)
    version: str = ""
    versions: dict[str, str] = Field({}, repr=False)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def run_kind(self) -> str:
        """`simulated` in words, which belong beside whatever says how sums were made."""
        return SIMULATED if self.simulated else REAL

    @property
    def sharing(self) -> str:
        """Who shared what, how it was summed, and whether anything was sent at all."""
        said, batch = self.settings, self.settings.get("batch", 1)
        words = [said.get("sharing"), said.get("aggregation")]
        words += ["signed"] * bool(said.get("signed")) + [f"batches of {batch}"] * (batch > 1)
        return f"{', '.join(str(word) for word in words if word)} ({self.run_kind})"


class TrainResult(_RunFacts):
    """What `fedmmf train --json` prints; its keys are a contract.

    Attributes:
        rmse: on test ratings, and so mae; None where nothing was kept for a test.
        rounds: that were trained; those of the best round's factors are kept.
        history: error on held-out ratings, round by round; None where it was not finite.
        j: how J is spread over users.
        tradeoff: what other thresholds would bring.
        ndcg: of as many items as were asked for, and so recall.
        ranking: the same at fixed lengths, which can be compared between runs.
        dp: what was spent; None: the run has no differential privacy.
    """

    rmse: FiniteFloat | None
    mae: FiniteFloat | None
    test_fraction: Share
    n_users: Count
    n_items: Count
    n_ratings: Count
    seed: Count
    mask: str
    solver: str
    factors: Count
    rounds: Count
    seconds: StageSeconds
    privacy: PrivacyGroups
    traffic: RoundTraffic
    best_round: Count | None = None
    ndcg: FiniteFloat | None = None
    recall: FiniteFloat | None = None
    ranking: RankingAccuracy | None = None
    baselines: tuple[BaselineAccuracy, ...] = ()
    dp: PrivacySpent | None = None
    cost: ProtocolCost | None = None
    history: tuple[FiniteFloat | None, ...] = Field((), repr=False)
    j: Histogram | None = Field(None, repr=False)
    tradeoff: tuple[TradeoffPoint, ...] = Field((), repr=False)


class RecommendedItem(_Typed):
    """One item for one user."""

    item_id: int | str
    prediction: FiniteFloat
    title: str | None = None


class RecommendedList(_Typed):
    """Items for one user, the best first."""

    user: int | str
    model: str = ""
    recommendations: tuple[RecommendedItem, ...]


class DemoResult(_Typed):
    """What `fedmmf demo --json` prints."""

    runs: tuple[TrainResult, ...] = Field(min_length=1)
    recommended: RecommendedList | None = None


class AttackOutcome(_Typed):
    """How well one attack did, beside what public knowledge alone would give.

    Attributes:
        name: of the attack.
        knows: what the attacker has, in a sentence.
        outputs: what it claims to find.
        measure: how success is counted.
        n_users: on whom it was tried.
        mean: success over users.
        interval: 95 % interval of the mean.
        baseline_mean: the same measure without the attack.
        advantage_interval: 95 % interval of success minus baseline, user by user.
        advantage: mean of that difference, the paired gain; version 0.1 did not print it.
        quantiles: of success over users, by their share of users.
        users: codes of the attacked users, in the order of success and baseline.
        success: of each user; None where there was nothing to attack.
        baseline: of each user.
    """

    name: str
    knows: str
    outputs: str
    measure: str
    n_users: Count
    mean: FiniteFloat
    interval: Interval
    baseline_mean: FiniteFloat
    advantage_interval: Interval
    advantage: FiniteFloat | None = None
    quantiles: dict[str, FiniteFloat] = Field({}, repr=False)
    users: tuple[int, ...] = Field((), repr=False)
    success: tuple[FiniteFloat | None, ...] = Field((), repr=False)
    baseline: tuple[FiniteFloat | None, ...] = Field((), repr=False)


class GroupingCounts(_Typed):
    """How many users each rule would let share in the clear."""

    by_indicator: Count  # J <= threshold_j
    by_audit: Count  # their own attacks find less than audit_limit
    exposed_by_indicator: Count  # by the first rule, not by the second


class AuditResult(_RunFacts):
    """What `fedmmf audit --json` prints.

    Attributes:
        recovered_share: share of a user's ratings exact that counts as recovered.
        audit_limit: share of ratings that a user's own audit may find at most.
        grouping: whom each rule would let share in the clear.
        privacy: the two groups by J.
        groups: attacks on masked ratings, by how their users would share.
        messages: attacks on messages of real parties, by what is attacked.
        sentences: what each attack found, the worst first.
        verdicts: what it comes to, by how users would share.
        j: how J is spread over users.
        tradeoff: what other thresholds would bring.
    """

    recovered_share: Share
    audit_limit: Share
    grouping: GroupingCounts
    privacy: PrivacyGroups
    groups: dict[str, tuple[AttackOutcome, ...]]
    messages: dict[str, tuple[AttackOutcome, ...]] = {}
    sentences: tuple[str, ...] = ()
    verdicts: dict[str, str] = {}
    j: Histogram | None = Field(None, repr=False)
    tradeoff: tuple[TradeoffPoint, ...] = Field((), repr=False)


def versions() -> dict[str, str]:
    """What makes a result, for whoever wants to make it again."""
    packages = ("fedmmf", "numpy", "numba", "cryptography")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}
