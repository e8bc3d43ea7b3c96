"""What commands print, models summarise and reports show: one schema of `typed` results."""

import platform
import re
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Annotated, Any, ClassVar, Self

from pydantic import ConfigDict, Field, FiniteFloat, computed_field, model_validator

from fedmmf.reports import headline
from fedmmf.reports.typed import Typed

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Interval = tuple[FiniteFloat, FiniteFloat]
SIMULATED, REAL = "simulated: no message was sent", "real parties"


class PrivacyGroups(Typed):
    """Number of users on either side of threshold_j, by their J on training ratings."""

    threshold_j: FiniteFloat
    secure_users: Count  # J <= threshold_j, the paper's rule
    insecure_users: Count
    mean_j: FiniteFloat | None
    mean_j_out_of_fold: FiniteFloat | None = None
    mean_relative_j: FiniteFloat | None = None  # J over the variance of the user's own ratings
    j_follows_variance: FiniteFloat | None = None  # Spearman's rank correlation of the two
    users_in_clear: Count | None = None  # who sent updates in the clear; 0 under strict sharing
    items_left_out: Count | None = None  # rated by too few for a sum that hides summands

    @property
    def n_users(self) -> int:
        """Number of users in both groups together."""
        return self.secure_users + self.insecure_users


class PrivacySpent(Typed):
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


class RoundTraffic(Typed):
    """Bytes of a mean user in one round, as messages are encoded for the wire."""

    up_bytes_per_user_round: FiniteFloat
    down_bytes_per_user_round: FiniteFloat


class ProtocolCost(Typed):
    """CPU seconds of the protocol alone in one round, and where the figures come from."""

    party_cpu_s: FiniteFloat
    server_cpu_s: FiniteFloat
    how: str = ""


class StageSeconds(Typed):
    """Seconds that the parts of a run took."""

    mask: FiniteFloat
    train: FiniteFloat
    total: FiniteFloat


MASK_ALONE = "mask alone"  # the baseline that is no plain mean


class BaselineAccuracy(Typed):
    """A simpler prediction of the same test ratings."""

    name: str
    rmse: FiniteFloat
    mae: FiniteFloat | None = None


class ListScores(Typed):
    """How good lists of items are: `docs/lists.md` has the definitions.

    Those that are always there can be compared between runs. Others of the same metrics, at the
    length that somebody asked for, are there by their names, such as `ndcg_at_5`.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, FiniteFloat | None] = Field(init=False)

    ndcg_at_10: FiniteFloat | None
    recall_at_20: FiniteFloat | None
    precision_at_10: FiniteFloat | None = None
    hit_rate_at_10: FiniteFloat | None
    map_at_10: FiniteFloat | None = None
    mrr_at_10: FiniteFloat | None = None
    coverage_at_10: FiniteFloat | None = None  # share of the catalogue that is in anybody's list
    novelty_at_10: FiniteFloat | None = None  # bits

    @model_validator(mode="before")
    @classmethod
    def _pass_over_what_is_no_metric(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        return {
            name: value
            for name, value in values.items()
            if name in cls.model_fields or _AT_LENGTH.fullmatch(name)
        }

    def metrics(self) -> dict[str, float | None]:
        """Every figure by its name, in the order of the metrics and of the lengths."""
        named = {name: value for name, value in self if _AT_LENGTH.fullmatch(name)}
        return dict(sorted(named.items(), key=lambda pair: _place_of(pair[0])))


_METRICS = {
    "ndcg": "nDCG",
    "recall": "recall",
    "precision": "precision",
    "hit_rate": "hit rate",
    "map": "MAP",
    "mrr": "MRR",
    "coverage": "coverage",
    "novelty": "novelty, bits",
}
_AT_LENGTH = re.compile(rf"({'|'.join(_METRICS)})_at_([1-9][0-9]*)")


def _place_of(name: str) -> tuple[int, int]:
    metric, _, length = name.rpartition("_at_")
    return list(_METRICS).index(metric), int(length)


def metric_title(name: str) -> str:
    """What people call a figure of `ListScores`: nDCG@10 for ndcg_at_10."""
    metric, _, length = name.rpartition("_at_")
    called, *unit = _METRICS[metric].split(", ")
    return ", ".join([f"{called}@{length}", *unit])


class RankingScores(ListScores):
    """A run's lists, means over users, beside one list for everybody: the most popular items.

    Attributes:
        n_users: who have something relevant to find in the test ratings; others do not count.
        relevant_from: the rating from which on an item is relevant.
        popularity: the same of the items with the most ratings in training, in the same way.
    """

    n_users: Count | None = None
    relevant_from: FiniteFloat | None = None
    popularity: ListScores | None = None


class Histogram(Typed):
    """The privacy indicator over users."""

    edges: tuple[FiniteFloat, ...] = Field(min_length=2)  # (n_bins + 1,)
    counts: tuple[Count, ...] = Field(min_length=1)  # (n_bins,)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        n_edges = len(self.counts) + 1
        if len(self.edges) != n_edges:
            raise ValueError(f"{n_edges - 1} counts need {n_edges} edges; got {len(self.edges)}")
        return self


class TradeoffPoint(Typed):
    """What one threshold_j would bring under adaptive sharing."""

    threshold_j: FiniteFloat
    share_in_clear: Share
    up_bytes_per_user_round: FiniteFloat | None = None
    recovered_share: Share | None = None  # of all users; known to an audit alone


class _RunFacts(Typed):
    """Facts about a run that do not depend on its results.

    Attributes:
        data: name of the ratings.
        synthetic: whether a program made the ratings up.
        simulated: False where every party and every message was real. A file that does not tell is
            taken as simulated, which claims less.
        settings: all of the run's settings.
        protection: what is hidden from whom under these settings, in sentences.
        version: of fedmmf.
        versions: of what else the run was made with.
        made: when, by the clock of the machine; commands tell, and so `command`.
        command: what was typed.
    """

    _simulated: ClassVar[str] = SIMULATED

    data: str
    synthetic: bool = False
    simulated: bool = True
    settings: dict[str, Any] = Field(repr=False)
    protection: tuple[str, ...] = Field((), repr=False)
    version: str = ""
    versions: dict[str, str] = Field({}, repr=False)
    made: str = ""
    command: str = Field("", repr=False)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def run_kind(self) -> str:
        """`simulated` in words, which belong beside whatever says how sums were made."""
        return self._simulated if self.simulated else REAL

    @computed_field(repr=False)  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> str:
        """Verdict of the run, in one sentence."""
        return headline.of(self)

    @computed_field(repr=False)  # type: ignore[prop-decorator]
    @property
    def in_clear(self) -> str | None:
        """Who is in the clear, and what that is worth; None under strict sharing."""
        return headline.in_clear(self)

    @property
    def sharing(self) -> str:
        """Who shared what, how it was summed, and whether anything was sent at all."""
        said, batch = self.settings, self.settings.get("batch", 1)
        words = [said.get("sharing")]
        words += [said.get("aggregation")] * (said.get("sharing") != "plain")  # which sums in none
        words += ["signed"] * bool(said.get("signed")) + [f"batches of {batch}"] * (batch > 1)
        return f"{', '.join(str(word) for word in words if word)} ({self.run_kind})"


class TrainResult(_RunFacts):
    """What `fedmmf train --json` prints; its keys are a contract.

    What is worked out comes first: `run_kind`, `verdict` and, where somebody is, `in_clear`.

    Attributes:
        rmse: on test ratings, and so mae; None where nothing was kept for a test.
        rounds: that were trained; those of the best round's factors are kept.
        best_round: by the held-out error; None where nothing was held out, and the last is kept.
        history: error on held-out ratings, round by round; None where it was not finite.
        j: how J is spread over users.
        tradeoff: what other thresholds would bring.
        ranking: how good lists are, where that was asked for.
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
    ranking: RankingScores | None = None
    baselines: tuple[BaselineAccuracy, ...] = ()
    dp: PrivacySpent | None = None
    cost: ProtocolCost | None = None
    history: tuple[FiniteFloat | None, ...] = Field((), repr=False)
    j: Histogram | None = Field(None, repr=False)
    tradeoff: tuple[TradeoffPoint, ...] = Field((), repr=False)

    @property
    def best_mean(self) -> BaselineAccuracy | None:
        """The best simple prediction, a plain mean; masks know something of the federation."""
        means = [baseline for baseline in self.baselines if baseline.name != MASK_ALONE]
        return min(means, key=lambda baseline: baseline.rmse, default=None)


class RecommendedItem(Typed):
    """One item for one user."""

    item_id: int | str
    prediction: FiniteFloat
    title: str | None = None


class RecommendedList(Typed):
    """Items for one user, the best first."""

    user: int | str
    model: str = ""
    recommendations: tuple[RecommendedItem, ...]


class DemoResult(Typed):
    """What `fedmmf demo --json` prints."""

    runs: tuple[TrainResult, ...] = Field(min_length=1)
    recommended: RecommendedList | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def run_kind(self) -> str:
        """Kind of its runs, which are all alike."""
        return self.runs[0].run_kind


class AttackOutcome(Typed):
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


class GroupingCounts(Typed):
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
        recovered_users: of those in the clear, or, under strict, had they shared in the clear.
        j: how J is spread over users.
        tradeoff: what other thresholds would bring.
    """

    _simulated: ClassVar[str] = "simulated: one process held all ratings"

    recovered_share: Share
    audit_limit: Share
    grouping: GroupingCounts
    privacy: PrivacyGroups
    groups: dict[str, tuple[AttackOutcome, ...]]
    messages: dict[str, tuple[AttackOutcome, ...]] = Field({})
    sentences: tuple[str, ...] = ()
    verdicts: dict[str, str] = Field({})
    recovered_users: Count | None = None
    j: Histogram | None = Field(None, repr=False)
    tradeoff: tuple[TradeoffPoint, ...] = Field((), repr=False)


def versions() -> dict[str, str]:
    """Versions of what makes a result, so that it can be reproduced."""
    packages = ("fedmmf", "numpy", "numba", "cryptography", *({"torch"} & sys.modules.keys()))
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}
