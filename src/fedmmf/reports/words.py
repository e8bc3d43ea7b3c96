"""The sentences of the page: what figures mean, and what they do not."""

from typing import Any

from fedmmf.reports.list_scores import FOR_LISTS, PREDICTED
from fedmmf.reports.results import (
    AuditResult,
    PrivacyGroups,
    TradeoffPoint,
    TrainResult,
)
from fedmmf.reports.spending import EpsilonBounds, PrivacyCost, PrivacySpent
from fedmmf.reports.svg import percent, plain
from fedmmf.settings.groups import sharers

SYNTHETIC = (
    "The ratings are synthetic: they are made up by a program, and nobody gave them. "
    "Figures on real ratings will differ."
)
SIMULATED = (
    "This page is about a simulation: all users were in one process, which held all ratings. It "
    "shows what a federation would give, and protected nobody's ratings."
)
IN_ONE_PROCESS = (
    "All parties were real, and so was every message between them and the server; but they were in "
    "one process, which held all ratings. It shows what a federation gives, and protected nobody's "
    "ratings."
)
SECURE_MEANS = (
    "Secure is the paper's word for J <= threshold_j. It says that the user's mask predicts the "
    "user's ratings well. A small J protects nobody by itself."
)
UNTOLD = "The run's file does not tell what was hidden from whom under its settings."
_TARGETS = {
    "in the clear": "masked ratings of users who would share in the clear",
    "in sums": "masked ratings of users who would not; no server gets these",
}
_UNDER_STRICT = {"in the clear": "masked ratings of users, had they shared in the clear"}


def of_model(train: TrainResult) -> str:
    """Name a run beside others."""
    return f"mask {train.mask}, solver {train.solver}"


def of_kind(result: TrainResult | AuditResult) -> str:
    """How real the run was: before all figures, what it protected."""
    return SIMULATED if result.simulated else IN_ONE_PROCESS


def of_accuracy(train: TrainResult) -> tuple[str, ...]:
    """What was tested on, and how the run compares with the best simple prediction."""
    sentences = [_of_test(train)]
    simple = train.best_mean
    if simple is not None and simple.rmse > 0 and train.rmse is not None:
        change = (train.rmse - simple.rmse) / simple.rmse
        side = "below" if change < 0 else "above"
        sentences.append(
            f"The RMSE is {percent(abs(change))} {side} that of the best simple prediction, "
            f"{simple.name}."
        )
    return tuple(sentences)


def _of_test(train: TrainResult) -> str:
    share = f"{percent(train.test_fraction)} of the ratings" if train.test_fraction else "Ratings"
    return f"{share} were kept for the test; nobody trained on them."


def of_ranking(train: TrainResult) -> tuple[str, ...]:
    """How good lists are, whose were judged, and by what."""
    ranking = train.ranking
    if ranking is None:
        return ()
    poor = (f"{PREDICTED}. {FOR_LISTS}",) if train.predicts else ()
    headline = ranking.headline()
    said = (f"{headline[0].upper()}{headline[1:]}.",) if headline else ()
    whose = "" if ranking.n_users is None else f" of {ranking.n_users:,} users"
    least = (
        "" if ranking.relevant_from is None else f", rated {plain(ranking.relevant_from)} or more"
    )
    return (
        *said,
        *poor,
        *(() if train.predicts else (_of_test(train),)),
        f"Lists{whose} are judged by the relevant items{least} among their test ratings; users "
        "without any are left out. Every item that a user has not rated in training may be listed.",
    )


def of_learning(train: TrainResult) -> tuple[str, ...]:
    """Describe the number of rounds and the best one."""
    if not train.best_round:
        return (f"Training took {len(train.history)} rounds.",)
    return (
        f"Training took {len(train.history)} rounds. Round {train.best_round} was the best, and "
        "its factors were kept. The error is on ratings that users held out of training, not on "
        "the test ratings.",
    )


def of_privacy(found: PrivacyGroups) -> tuple[str, ...]:
    """Describe who is secure, and what that means."""
    share = found.secure_users / max(found.n_users, 1)
    counted = (
        f"{found.secure_users:,} of {found.n_users:,} users ({percent(share)}) have "
        f"J <= {plain(found.threshold_j)}."
    )
    means = {
        "on the ratings it was fitted to": found.mean_j,
        "out of fold": found.mean_j_out_of_fold,
    }
    known = [f"{value:.4f} {where}" for where, value in means.items() if value is not None]
    mean = (f"The mean J is {', and '.join(known)}.",) if known else ()
    about = (
        "J is the mean squared difference between a user's ratings and the user's private mask, "
        "on a scale from 0 to 1."
    )
    return (counted, about, *mean, *_of_variance(found), SECURE_MEANS)


def _of_variance(found: PrivacyGroups) -> tuple[str, ...]:
    """J beside how much users vary, for a small J mostly means a calm rater."""
    sentences = []
    if found.mean_relative_j is not None:
        sentences.append(
            "J divided by the variance of the user's own ratings is "
            f"{found.mean_relative_j:.4f} in the mean; at 1 a mask is no better than the user's "
            "own mean."
        )
    if found.j_follows_variance is not None:
        sentences.append(
            "Over users, the rank correlation of J with that variance is "
            f"{found.j_follows_variance:.4f} (Spearman); near 1, a small J says little more than "
            "that a user's ratings are much alike."
        )
    return tuple(sentences)


def of_cost(cost: PrivacyCost | None) -> tuple[str, ...]:
    """Say what privacy costs, and that this is outside epsilon."""
    if cost is None:
        return ("What privacy costs here was not measured (--dp-cost does).",)
    return (cost.sentence, cost.outside)


def of_bounds(known: EpsilonBounds) -> tuple[str, ...]:
    """Explain how the lower bound was found, and what it is not."""
    return (
        "A planted user's updates are nearly as large as the clip lets them be, those of lists not "
        "always. The attacker knows "
        "everybody else's updates, and weighs what is left of each sum by the likelihood ratio. "
        f"Limits hold with {100 * known.level:g} % each. By means: scores are taken for Gaussian. "
        "By counting: nothing is assumed, and few runs cannot prove a large epsilon.",
        "A lower bound proves nothing about safety. It would show a mistake: noise that is too "
        "small, or a clip that does not hold.",
    )


def of_spending(spent: PrivacySpent) -> tuple[str, ...]:
    """Explain what epsilon covers, and what it does not."""
    return (
        f"Epsilon compares {spent.neighbours}. Noise is added by {spent.added_by}.",
        spent.not_covered,
    )


def of_tradeoff(settings: dict[str, Any]) -> tuple[str, ...]:
    """Explain what the curves show."""
    is_adaptive = sharers(settings) == "some"
    is_by_j = is_adaptive and settings.get("grouping") != "audit"
    sharing = "" if is_by_j else " This run did not share so; the curves say what would be."
    return (
        "Under adaptive sharing, a larger threshold_j lets more users send their updates in the "
        f"clear.{sharing}",
        "Fewer bytes are bought with exposure: a user in the clear is obfuscated, not protected.",
    )


def of_point(point: TradeoffPoint) -> str:
    """Describe the effect of one threshold_j."""
    parts = [f"{percent(point.share_in_clear)} of the users share in the clear"]
    if point.up_bytes_per_user_round is not None:
        kilobytes = plain(point.up_bytes_per_user_round / 1e3)
        parts.append(f"a user sends {kilobytes} kB a round on average")
    if point.recovered_share is not None:
        parts.append(f"an attack recovers the ratings of {percent(point.recovered_share)} of users")
    return f"With threshold_j = {plain(point.threshold_j)}: {'; '.join(parts)}."


def of_attacks(audit: AuditResult) -> tuple[str, ...]:
    """What the attacks found, less what leads the page, then how to read them."""
    leading = audit.finding if audit.verdict is None else ""
    verdicts = (
        f"Users {group}: {verdict}"
        for group, verdict in audit.verdicts.items()
        if verdict not in leading
    )
    found = audit.grouping
    rules = (
        f"The rule J <= threshold_j lets {found.by_indicator:,} users share in the clear; "
        f"of these, {found.exposed_by_indicator:,} lose {percent(audit.audit_limit)} of their "
        "ratings or more to the best attack. A rule by each user's own audit would let "
        f"{found.by_audit:,} share."
    )
    how_to_read = (
        "Success is a mean over users, with a 95 % interval. The baseline is what the same measure "
        "gives to public knowledge alone. The gain is the difference, user by user: where all of "
        "its interval is above 0, the attack has learned what the public does not know, or was "
        "lucky, as one in forty is. The verdict on sums allows for the number of attacks."
    )
    return (*verdicts, rules, how_to_read)


def of_mismatch(audit: AuditResult, train: TrainResult | None) -> tuple[str, ...]:
    """Say so where audit and training do not belong together."""
    if train is None:
        return ()
    ours, theirs = ({"data": part.data, **part.settings} for part in (train, audit))
    known = ours.keys() & theirs.keys()
    differing = sorted(name for name in known if ours[name] != theirs[name])
    if not differing:
        return ()
    return (f"The audit is of another run than the rest of this page: {', '.join(differing)}.",)


def of_target(name: str, *, is_strict: bool) -> str:
    """Name the target of an attack."""
    return (_TARGETS | _UNDER_STRICT if is_strict else _TARGETS).get(name, name)


def of_traffic(train: TrainResult) -> tuple[str, ...]:
    """Explain where the figures on traffic come from."""
    how = train.cost.how.rstrip(".") if train.cost else ""
    cost = (f"CPU seconds are of the protocol alone: {how}.",) if how else ()
    return ("Bytes are those of the messages as they are encoded for the wire.", *cost)


def of_protection(result: TrainResult | AuditResult) -> tuple[str, ...]:
    """What is hidden from whom under the settings of the run, in the run's own words."""
    return (*(result.protection or (UNTOLD,)), SECURE_MEANS, of_kind(result))
