"""What commands print, models summarise and reports show: one schema of `typed` results."""

import platform
import sys
from abc import abstractmethod
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, ClassVar, Self

from pydantic import Field, FiniteFloat, computed_field, field_validator, model_validator

from fedmmf.masks.settings import is_masked
from fedmmf.reports.list_scores import RankingScores, RecommendedList
from fedmmf.reports.spending import EpsilonBounds, PrivacyCost, PrivacySpent
from fedmmf.reports.typed import Count, Share, Typed
from fedmmf.reports.verdict import AttackOutcome, GroupingCounts, Verdict
from fedmmf.settings.groups import sharers

SIMULATED, REAL = "simulated: no message was sent", "real parties"
CLEAR, SUMMED = "in the clear", "in sums"  # the two groups of an audit


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

    def in_clear(self, settings: Mapping[str, Any], *, simulated: bool) -> str | None:
        """Return a part of a sentence: the users in the clear, the rule, and what it is worth.

        None where nobody's update can leave in the clear.
        """
        if self.users_in_clear is None or sharers(settings) == "nobody":
            return None
        what = "masked ratings" if settings.get("collect_masked") else "updates"
        verb = "would send" if simulated else "sent"
        hidden = "which is obfuscation, not protection"
        worth = hidden if is_masked(settings) else "and nothing hides their part"
        return (
            f"{self.users_in_clear:,} of {self.n_users:,} users{self._rule(settings)} {verb} their "
            f"{what} in the clear, {worth}"
        )

    def _rule(self, settings: Mapping[str, Any]) -> str:
        if sharers(settings) == "everybody":
            return ""
        if settings.get("grouping") == "audit":
            return f" (whose own audit finds less than {settings.get('audit_limit', 0.5):.0%})"
        return f" (J <= {self.threshold_j:g})"


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


class RunResult(Typed):
    """What every run tells: facts that do not depend on its results, and its verdict.

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

    @property
    @abstractmethod
    def in_clear(self) -> str | None:
        """Who is in the clear, and what that is worth; None under strict sharing."""

    @property
    def sharing(self) -> str:
        """Who shared what, how it was summed, and whether anything was sent at all."""
        said, batch = self.settings, self.settings.get("batch", 1)
        words = [said.get("sharing")]
        words += [said.get("aggregation")] * (sharers(said) != "everybody")  # who sum in none
        words += ["signed"] * bool(said.get("signed")) + [f"batches of {batch}"] * (batch > 1)
        return f"{', '.join(str(word) for word in words if word)} ({self.run_kind})"


class TrainResult(RunResult):
    """What `fedmmf train --json` prints; its keys are a contract.

    What is worked out comes first: `run_kind`, `verdict`, `objective` and, where somebody is,
    `in_clear`.

    Attributes:
        rmse: on test ratings, and so mae; None where nothing was kept for a test.
        rounds: that were trained; those of the best round's factors are kept.
        best_round: by the held-out error; None where nothing was held out, and the last is kept.
        history: error on held-out ratings, round by round; None where it was not finite.
        j: how J is spread over users.
        tradeoff: what other thresholds would bring.
        ranking: how good lists are, where that was asked for.
        dp: what was spent; None: the run has no differential privacy.
        dp_cost: accuracy with and without that; None: nobody measured it.
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
    dp_cost: PrivacyCost | None = None
    cost: ProtocolCost | None = None
    history: tuple[FiniteFloat | None, ...] = Field((), repr=False)
    j: Histogram | None = Field(None, repr=False)
    tradeoff: tuple[TradeoffPoint, ...] = Field((), repr=False)

    @computed_field(repr=False)  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> str:
        """Name the privacy spent, the users in the clear, and how good lists and ratings are."""
        lists = "" if self.ranking is None else self.ranking.headline()
        error = "" if lists and self.rmse is None else self._accuracy()
        parts = (self.dp and self.dp.headline(), self.in_clear, lists, error)
        said = "; ".join(part for part in parts if part)
        return f"{said[0].upper()}{said[1:]}."

    @computed_field(repr=False)  # type: ignore[prop-decorator]
    @property
    def objective(self) -> str:
        """What was learned: `rating` or `ranking`."""
        return str(self.settings.get("objective", "rating"))

    @property
    def ndcg(self) -> float | None:
        """The nDCG@10 of lists, where they were asked for."""
        return None if self.ranking is None else self.ranking.ndcg_at_10

    @property
    def predicts(self) -> bool:
        """Whether the model predicts ratings, rather than only ranking items."""
        return self.objective == "rating"

    @computed_field(repr=False)  # type: ignore[prop-decorator]
    @property
    def in_clear(self) -> str | None:
        """Who is in the clear, and what that is worth; None under strict sharing."""
        return self.privacy.in_clear(self.settings, simulated=self.simulated)

    def _accuracy(self) -> str:
        """Compare the error with that of the best simple prediction."""
        if self.rmse is None:
            return "nothing was tested, so that the error is not known"
        said, simple = f"RMSE {self.rmse:.4f} on test ratings", self.best_mean
        if simple is None or simple.rmse <= 0:
            return said
        change = (self.rmse - simple.rmse) / simple.rmse
        side = "below" if change < 0 else "above"
        return (
            f"{said}, {abs(change):.1%} {side} that of the best simple prediction ({simple.name}, "
            f"{simple.rmse:.4f})"
        )

    @property
    def best_mean(self) -> BaselineAccuracy | None:
        """The best simple prediction, a plain mean; masks know something of the federation."""
        means = [baseline for baseline in self.baselines if baseline.name != MASK_ALONE]
        return min(means, key=lambda baseline: baseline.rmse, default=None)


class DemoResult(Typed):
    """What `fedmmf demo --json` prints."""

    runs: tuple[TrainResult, ...] = Field(min_length=1)
    recommended: RecommendedList | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def run_kind(self) -> str:
        """Kind of its runs, which are all alike."""
        return self.runs[0].run_kind


class AuditResult(RunResult):
    """What `fedmmf audit --json` prints.

    Attributes:
        recovered_share: share of a user's ratings exact that counts as recovered.
        audit_limit: share of ratings that a user's own audit may find at most.
        grouping: whom each rule would let share in the clear.
        privacy: the two groups by J.
        groups: attacks on masked ratings, by how their users would share.
        messages: attacks on messages of real parties, by what is attacked.
        verdict: for people who decide; None: a file of an older version has none.
        epsilon: its bounds from both sides; None: the run has no privacy budget.
        attacked_users: who were attacked, drawn from all; None: everybody.
        sentences: what each attack found, the worst first.
        verdicts: what it comes to, by how users would share.
        recovered_users: of those in the clear, or, under strict, had they shared in the clear.
        j: how J is spread over users.
        tradeoff: what other thresholds would bring.
    """

    _simulated: ClassVar[str] = "simulated: this protected nobody, one process held all ratings"

    leading = ("verdict",)

    verdict: Verdict | None = None
    epsilon: EpsilonBounds | None = None
    attacked_users: Count | None = None
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

    @field_validator("verdict", mode="before")
    @classmethod
    def _is_for_deciders(cls, given: Any) -> Any:
        """Pass over the sentence that version 0.2 had under this name."""
        return None if isinstance(given, str) else given

    @property
    def finding(self) -> str:
        """Say what attacks find of those in the clear; of sums too, where nobody is.

        Under strict sharing sums come first. It is empty where the run's file has no verdict.
        """
        clear = self.verdicts.get(CLEAR) or next(iter(self.sentences), "")
        sums = self.verdicts.get(SUMMED, "")
        if self.settings.get("sharing") == "strict":
            return f"{sums} {clear}".strip()
        is_anybody = self.privacy.users_in_clear != 0
        return clear if is_anybody else f"{clear} {sums}".strip()

    @computed_field(repr=False)  # type: ignore[prop-decorator]
    @property
    def in_clear(self) -> str | None:
        """Who is in the clear, and what that is worth; None under strict sharing."""
        return self.privacy.in_clear(self.settings, simulated=self.simulated)


def versions() -> dict[str, str]:
    """Versions of what makes a result, so that it can be reproduced."""
    packages = ("fedmmf", "numpy", "numba", "cryptography", *({"torch"} & sys.modules.keys()))
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}
