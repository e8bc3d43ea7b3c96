"""The one-sentence verdict of a run, the same on pages, terminals and in JSON."""

from typing import Any

Found = Any  # a `TrainResult` or an `AuditResult`, which have this sentence and so import this file
CLEAR, SUMMED = "in the clear", "in sums"  # the two groups of an audit


def of(found: Found) -> str:
    """Return the sentence of a training, or of an audit, which has verdicts already."""
    return _of_audit(found) if hasattr(found, "verdicts") else _of_training(found)


def _of_training(found: Found) -> str:
    """Name the privacy spent, the users in the clear and the accuracy, where known.

    Returns:
        One sentence.
    """
    parts = (_spent(found), in_clear(found), _lists(found) or _accuracy(found))
    said = "; ".join(part for part in parts if part)
    return f"{said[0].upper()}{said[1:]}."


def _of_audit(found: Found) -> str:
    """What attacks find of those in the clear; of sums too, where nobody is; first under strict.

    Returns:
        The run's own verdict, or nothing where its file has none.
    """
    clear = found.verdicts.get(CLEAR) or next(iter(found.sentences), "")
    sums = found.verdicts.get(SUMMED, "")
    if found.settings.get("sharing") == "strict":
        return f"{sums} {clear}".strip()
    is_anybody = found.privacy.users_in_clear != 0
    return clear if is_anybody else f"{clear} {sums}".strip()


def in_clear(found: Found) -> str | None:
    """Name the users in the clear, the rule, and what the rule is worth.

    Returns:
        A part of a sentence; None where nobody's update can leave in the clear.
    """
    n_clear, chosen = found.privacy.users_in_clear, found.settings
    if n_clear is None or chosen.get("sharing") not in ("adaptive", "plain"):
        return None
    what = "masked ratings" if chosen.get("collect_masked") else "updates"
    verb = "would send" if found.simulated else "sent"
    is_masked = chosen.get("mask", "none") != "none"
    worth = "which is obfuscation, not protection" if is_masked else "and nothing hides their part"
    return (
        f"{n_clear:,} of {found.privacy.n_users:,} users{_rule(found)} {verb} their {what} in the "
        f"clear, {worth}"
    )


def _rule(found: Found) -> str:
    if found.settings.get("sharing") == "plain":
        return ""
    if found.settings.get("grouping") == "audit":
        return f" (whose own audit finds less than {found.settings.get('audit_limit', 0.5):.0%})"
    return f" (J <= {found.privacy.threshold_j:g})"


def _spent(found: Found) -> str:
    if found.dp is None:
        return ""
    return f"epsilon {found.dp.epsilon:.4g} at delta {found.dp.delta:g} for a whole user"


def _lists(found: Found) -> str:
    """Describe a run that ranks items and predicts no ratings."""
    ranking = found.ranking
    if found.rmse is not None or ranking is None or ranking.ndcg_at_10 is None:
        return ""
    popular = None if ranking.popularity is None else ranking.popularity.ndcg_at_10
    beside = "" if popular is None else f", that of the most popular items {popular:.4f}"
    return f"the nDCG@10 of lists is {ranking.ndcg_at_10:.4f}{beside}"


def _accuracy(found: Found) -> str:
    if found.rmse is None:
        return "nothing was tested, so that the error is not known"
    said = f"RMSE {found.rmse:.4f} on test ratings"
    simple = found.best_mean
    if simple is None or simple.rmse <= 0:
        return said
    change = (found.rmse - simple.rmse) / simple.rmse
    side = "below" if change < 0 else "above"
    return (
        f"{said}, {abs(change):.1%} {side} that of the best simple prediction ({simple.name}, "
        f"{simple.rmse:.4f})"
    )
