"""The sentences of the page: what figures mean, and what they do not."""

from collections.abc import Mapping
from typing import Any

from fedmmf.reports.shapes import Audit, Privacy, Run, TradeoffPoint, Train
from fedmmf.reports.svg import percent, plain

SYNTHETIC = (
    "The ratings are synthetic: they are made up by a program, and nobody gave them. "
    "Figures on real ratings will differ."
)
SECURE_MEANS = (
    "Secure is the paper's word for J <= threshold_j. It says that the user's mask predicts the "
    "user's ratings well. A small J protects nobody by itself."
)
_TARGETS = {
    "in the clear": "masked ratings of users who would share in the clear",
    "in sums": "masked ratings of users who would not; no server gets these",
}
_NOT_HIDDEN = (
    "Not hidden: that a user takes part, what the sums themselves say, and differences between "
    "sums of groups that change from round to round."
)
_KEEPER = (
    "Sharing is strict: every update goes into a sum, made under homomorphic encryption. The "
    "server adds ciphertexts and has no key. One party, the keeper, decrypts the sums. The keeper "
    "must not collude with the server, and the server must hand it the sum of all."
)
_STRICT = {
    "secure": (
        "Sharing is strict: every update goes into a sum, made by secure aggregation. A server "
        "that follows the protocol learns the sum over the users who stayed. It sees no single "
        "update, so neither a user's masked ratings nor which items that user rated.",
        "Other users see even less. Users who collude with the server do not change this while "
        "they are fewer than the protocol's threshold.",
        _NOT_HIDDEN,
    ),
    "homomorphic-paillier": (_KEEPER, _NOT_HIDDEN),
    "homomorphic-ckks": (_KEEPER, _NOT_HIDDEN),
    "dp": (
        "Updates are shortened and get noise (differential privacy): what the server sees says "
        "little about whether a user took part. How little, dp_epsilon says; smaller is less.",
        "With dp_noise local the server sees single updates with much noise; with distributed it "
        "sees sums alone, made by secure aggregation.",
    ),
}
_OPEN = {
    "adaptive": (
        "Sharing is adaptive, the paper's way: users with J <= threshold_j send their updates in "
        "the clear. This is obfuscation, not protection. Who knows the item features and the kind "
        "of mask can work ratings out of masked ratings.",
        "The server also learns who is in which group, and which items users in the clear rated.",
        "Updates of the others go into a sum, made by secure aggregation. These users hide in a "
        "smaller crowd than under strict sharing.",
        _NOT_HIDDEN,
    ),
    "plain": (
        "Sharing is plain: the server sees the update of every user. From two rounds of updates it "
        "can work out masked ratings, and without a mask the ratings themselves.",
    ),
}
_COLLECTED = "The server collects the masked ratings themselves of users with J <= threshold_j."
SIMULATED = (
    "This page is about a simulation: all users were in one process, which held all ratings. It "
    "shows what a federation would give, and protected nobody's ratings."
)


def of_accuracy(train: Train) -> tuple[str, ...]:
    """What was tested on, and how the run compares with the best simple prediction."""
    share = f"{percent(train.test_fraction)} of the ratings" if train.test_fraction else "Ratings"
    sentences = [f"{share} were kept for the test; nobody trained on them."]
    if train.baselines and train.rmse is not None:
        simple = min(train.baselines, key=lambda baseline: baseline.rmse)
        change = (train.rmse - simple.rmse) / simple.rmse
        side = "below" if change < 0 else "above"
        sentences.append(
            f"The RMSE is {percent(abs(change))} {side} that of the best simple prediction, "
            f"{simple.name}."
        )
    ranked = {"NDCG": train.ndcg, "Recall": train.recall}
    sentences += [f"{name} is {value:.4f}." for name, value in ranked.items() if value is not None]
    return tuple(sentences)


def of_learning(train: Train) -> tuple[str, ...]:
    """How long it trained."""
    if not train.best_round:
        return (f"Training took {len(train.history)} rounds.",)
    return (
        f"Training took {len(train.history)} rounds. Round {train.best_round} was the best, and "
        "its factors were kept. The error is on ratings that users held out of training, not on "
        "the test ratings.",
    )


def of_privacy(found: Privacy) -> tuple[str, ...]:
    """Who is secure, and what that means."""
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
    return (counted, about, *mean, SECURE_MEANS)


def of_tradeoff(settings: dict[str, Any]) -> tuple[str, ...]:
    """What the curves are about."""
    is_adaptive = settings.get("sharing") == "adaptive"
    sharing = "" if is_adaptive else " This run did not share so; the curves say what would be."
    return (
        "Under adaptive sharing, a larger threshold_j lets more users send their updates in the "
        f"clear.{sharing}",
        "Fewer bytes are bought with exposure: a user in the clear is obfuscated, not protected.",
    )


def of_point(point: TradeoffPoint) -> str:
    """One threshold in words."""
    parts = [f"{percent(point.share_in_clear)} of the users share in the clear"]
    if point.up_kilobytes is not None:
        parts.append(f"a user sends {plain(point.up_kilobytes)} kB a round on average")
    if point.recovered_share is not None:
        parts.append(f"an attack recovers the ratings of {percent(point.recovered_share)} of users")
    return f"With threshold_j = {plain(point.threshold_j)}: {'; '.join(parts)}."


def of_attacks(audit: Audit) -> tuple[str, ...]:
    """What the attacks found, then how to read them."""
    sentences = [f"Users {group}: {verdict}" for group, verdict in audit.verdicts.items()]
    sentences += audit.sentences
    if audit.grouping is not None and audit.audit_limit is not None:
        found = audit.grouping
        sentences.append(
            f"The rule J <= threshold_j lets {found.by_indicator:,} users share in the clear; "
            f"of these, {found.exposed_by_indicator:,} lose {percent(audit.audit_limit)} of their "
            "ratings or more to the best attack. A rule by each user's own audit would let "
            f"{found.by_audit:,} share."
        )
    sentences.append(
        "Success is a mean over users, with a 95 % interval. The baseline is what the same measure "
        "gives to public knowledge alone: an attack that is no better has learned nothing new."
    )
    return tuple(sentences)


def of_mismatch(audit: Audit, train: Train | None) -> tuple[str, ...]:
    """Say so where audit and training do not belong together."""
    if train is None:
        return ()
    ours, theirs = ({"data": part.data, **part.settings} for part in (train, audit))
    known = {name for name in ours.keys() & theirs.keys() if theirs[name] != ""}
    differing = sorted(name for name in known if ours[name] != theirs[name])
    if not differing:
        return ()
    return (f"The audit is of another run than the rest of this page: {', '.join(differing)}.",)


def of_target(name: str) -> str:
    """What was attacked."""
    return _TARGETS.get(name, name)


def of_traffic(train: Train) -> tuple[str, ...]:
    """Where the figures come from."""
    how = train.cost.how.rstrip(".") if train.cost else ""
    cost = (f"CPU seconds are of the protocol alone: {how}.",) if how else ()
    return ("Bytes are those of the messages as they are encoded for the wire.", *cost)


def of_protection(run: Run) -> tuple[str, ...]:
    """What is hidden from whom under the settings of the run."""
    source = run.best or run.audit
    chosen: Mapping[str, Any] = source.settings if source else {}
    sharing = str(chosen.get("sharing"))
    hidden = _OPEN.get(sharing, ())
    if sharing == "strict":
        hidden = _STRICT.get(str(chosen.get("aggregation")), ())
    if chosen.get("collect_masked"):
        hidden = (*hidden, _COLLECTED)
    return (*hidden, SECURE_MEANS, SIMULATED)
