"""The first part of the page, with the verdict, and the last part, with the origin."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from fedmmf import __version__
from fedmmf.reports import words
from fedmmf.reports.reading import Run
from fedmmf.reports.results import AuditResult, TrainResult
from fedmmf.reports.svg import percent, plain
from fedmmf.reports.verdict import AttackOutcome, Verdict

MAX_TILES = 6
_CLEAR, _SUMS = "in the clear", "sums of strict mode"  # as an audit calls what it attacks


@dataclass(frozen=True)
class Tile:
    """A large figure, what it is, and what to hold it against."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Origin:
    """Where one result of the page comes from; a text may be empty."""

    made: str
    command: str
    versions: str


def kinds(run: Run) -> list[tuple[str, str]]:
    """Say whether the run was simulated, and what that means; twice where the parts differ.

    Returns:
        Pairs such as ("simulated", "no message was sent").
    """
    parts = {"training": run.best, "audit": run.audit}
    said = {part: result.run_kind for part, result in parts.items() if result is not None}
    if len({kind.split(":")[0] for kind in said.values()}) > 1:
        return [_pair(f"{part} {kind}") for part, kind in said.items()]
    return [_pair(next(iter(said.values())))]


def _pair(kind: str) -> tuple[str, str]:
    how, _, meaning = kind.partition(": ")
    return how, meaning


def for_deciders(run: Run) -> Verdict | None:
    """Return the verdict of the audit; None: there is no audit, or an older one."""
    return None if run.audit is None else run.audit.verdict


def verdict(run: Run) -> str:
    """Return the leading sentence of the page; an audit's goes before a training's."""
    decided = for_deciders(run)
    if decided is not None:
        return decided.sentence
    if run.audit is not None and run.audit.finding:
        return run.audit.finding
    best = run.best
    if best is None:
        return ""
    if len(run.trained) < 2:
        return best.verdict
    return f"The best of {len(run.trained)} runs is {words.of_model(best)}: {best.verdict}"


def tiles(run: Run) -> list[Tile]:
    """Three to six figures, the most telling first."""
    found = [] if run.audit is None else _of_audit(run.audit)
    if run.best is not None:
        found += _of_training(run.best)
    return found[:MAX_TILES]


def _of_audit(audit: AuditResult) -> list[Tile]:
    privacy, grouping = audit.privacy, audit.grouping
    n_users = audit.attacked_users or privacy.n_users
    of_all = f"of {n_users:,} users"
    by_j = f"{of_all}, by the paper's rule; it protects nobody by itself"
    limit = percent(audit.audit_limit)
    is_strict = audit.settings.get("sharing") == "strict"
    return [
        *_of_bounds(audit),
        *(_had_they_shared(audit) if is_strict else _of_shared(audit)),
        Tile(f"J <= {plain(privacy.threshold_j)}", f"{grouping.by_indicator:,}", by_j),
        Tile(
            "pass an audit", f"{grouping.by_audit:,}", f"{of_all}: attacks find less than {limit}"
        ),
    ]


def _of_bounds(audit: AuditResult) -> list[Tile]:
    """Make the tile on epsilon, where the audited run has a budget."""
    known = audit.epsilon
    if known is None:
        return []
    note = f"proven at most; an attack found at least {known.lower:.3g}"
    return [Tile("epsilon, a whole user", f"{known.proven:.4g}", note)]


def _of_shared(audit: AuditResult) -> list[Tile]:
    """Make the tiles on masked ratings in the clear."""
    found, attacked = [], audit.groups.get(_CLEAR, ())
    n_clear = max((attack.n_users for attack in attacked), default=0)
    if audit.recovered_users is not None and n_clear:
        counted = f"{audit.recovered_users:,} of {n_clear:,}"
        share = percent(audit.recovered_share)
        note = f"of those in the clear: some attack finds {share} of their ratings or more"
        found.append(Tile("users recovered", counted, note))
    best = _best(audit.groups.get(_CLEAR, ()))
    if best is not None:
        note = f"of what {best.name} looks for; public knowledge: {percent(best.baseline_mean)}"
        found.append(Tile("found by the best attack", percent(best.mean), note))
    return found


def _had_they_shared(audit: AuditResult) -> list[Tile]:
    """Under strict sharing nobody is in the clear: sums first."""
    sums = [attack for attack in audit.messages.get(_SUMS, ()) if attack.n_users]
    found = []
    if sums:
        most = max(sums, key=_gain)
        best_of = f", the best of {len(sums)} attacks" if len(sums) > 1 else ""
        note = f"over public knowledge, by {most.name}{best_of}"
        found.append(Tile("gained from sums", f"{_gain(most):+.4f}", note))
    best = _best(audit.groups.get(_CLEAR, ()))
    if best is not None and audit.recovered_users is not None:
        note = f"of whom adaptive lets share; {best.name} finds {percent(best.mean)}"
        counted = f"{audit.recovered_users:,} of {best.n_users:,}"
        found.append(Tile("recovered, had they shared in the clear", counted, note))
    return found


def _best(attacks: Sequence[AttackOutcome]) -> AttackOutcome | None:
    """Return the attack with the highest mean success, among those tried on anybody."""
    tried = [attack for attack in attacks if attack.n_users]
    return max(tried, key=lambda attack: attack.mean, default=None)


def _gain(attack: AttackOutcome) -> float:
    return attack.mean - attack.baseline_mean


def _of_training(train: TrainResult) -> list[Tile]:
    traffic = train.traffic
    up, down = (
        plain(n_bytes / 1e3)
        for n_bytes in (traffic.up_bytes_per_user_round, traffic.down_bytes_per_user_round)
    )
    size = f"{train.n_users:,} users, {train.n_items:,} items"
    best = f"round {train.best_round:,} was the best" if train.best_round else ""
    return [
        *_of_budget(train),
        *_of_clear(train),
        *_of_accuracy(train),
        *_of_indicator(train),
        Tile("ratings", f"{train.n_ratings:,}", size),
        Tile("up, a user and round", f"{up} kB", f"{down} kB down"),
        Tile("rounds", f"{train.rounds:,}", best),
    ]


def _of_budget(train: TrainResult) -> list[Tile]:
    spent = train.dp
    if spent is None:
        return []
    rounds = f"of {spent.rounds_used:,} rounds; less protects more"
    return [
        Tile("epsilon, a whole user", f"{spent.epsilon:.4g}", rounds),
        Tile("delta", f"{spent.delta:g}", "of the whole training"),
    ]


def _of_clear(train: TrainResult) -> list[Tile]:
    if train.in_clear is None:
        return []
    found = train.privacy
    counted = f"{found.users_in_clear:,} of {found.n_users:,}"
    return [Tile("users in the clear", counted, "obfuscated at most, not protected")]


def _of_accuracy(train: TrainResult) -> list[Tile]:
    """Make the tiles on lists, where they were asked for, and then on ratings."""
    found = []
    if train.ranking is not None and train.ranking.ndcg_at_10 is not None:
        popular = train.ranking.popularity
        score = None if popular is None else popular.ndcg_at_10
        note = "" if score is None else f"the most popular items: {score:.4f}"
        if train.dp_cost is not None and train.dp_cost.ndcg_at_10_without is not None:
            note += f"; without privacy: {train.dp_cost.ndcg_at_10_without:.4f}"
        found.append(Tile("nDCG@10 of lists", f"{train.ranking.ndcg_at_10:.4f}", note))
    if train.rmse is not None:
        simple = train.best_mean
        note = "" if simple is None else f"{simple.name}: {simple.rmse:.4f}"
        if train.dp_cost is not None and train.dp_cost.rmse_without is not None:
            note = f"without privacy: {train.dp_cost.rmse_without:.4f}"
        found.append(Tile("RMSE on test ratings", f"{train.rmse:.4f}", note))
    return found


def _of_indicator(train: TrainResult) -> list[Tile]:
    """J leads nobody by itself: it is left to the page where something else says more."""
    if train.dp is not None or train.in_clear is not None:
        return []
    found = train.privacy
    share = percent(found.secure_users / max(found.n_users, 1))
    return [
        Tile(f"users with J <= {plain(found.threshold_j)}", share, "it protects nobody by itself")
    ]


def origins(run: Run) -> list[Origin]:
    """When, by which command and with which versions the results were made."""
    found = []
    for result in (run.best, run.audit):
        if result is not None:
            numbers = {"fedmmf": result.version, **result.versions}
            shown = {"fedmmf": "fedmmf", "python": "Python", "numpy": "numpy"}
            named = [f"{shown[name]} {numbers[name]}" for name in shown if numbers.get(name)]
            found.append(Origin(result.made, result.command, ", ".join(named)))
    return found


def written() -> str:
    """When this page was written, and by what."""
    return f"{datetime.now(UTC).strftime('%Y-%m-%d %H:%M UTC')} by fedmmf {__version__}"
