"""One audit from ratings to a typed result."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedmmf import __version__
from fedmmf.aggregation import AGGREGATIONS
from fedmmf.arrays import Array
from fedmmf.attacks import attacks_on
from fedmmf.attacks.self_audit import AttackAudit
from fedmmf.audit.exposure import expose
from fedmmf.audit.messages import attack_messages, n_steps
from fedmmf.audit.verdicts import RECOVERED, AuditFindings, on_ratings, outcome
from fedmmf.data import Ratings
from fedmmf.errors import DataError
from fedmmf.masks.fitting import resolve_mask
from fedmmf.masks.indicator import histogram
from fedmmf.party.policy import Private
from fedmmf.reports.results import AuditResult, versions
from fedmmf.settings import Settings
from fedmmf.simulation import Prepared, prepare
from fedmmf.simulation.costs import tradeoff

Told = Callable[[str, int, int], None]
"""Called with what begins, how many steps are done, and how many there are."""
_CELLS = 6_000_000  # levels times ratings; attacks on sums hold some twenty numbers for each
_LEVELS = (21, 201)  # a scale is never made coarser than the first, nor left finer than the second


def _silent(what: str, done: int, of: int) -> None:
    """Ignore progress reports, which have a text, a count and a total."""


def audit(ratings: Ratings, settings: Settings, progress: Told = _silent) -> AuditResult:
    """Fit the masks as the run would, and attack; `progress` is called at every step.

    Masked ratings of all users are attacked; those of users who share in the clear are what a
    server would hold. Under strict sharing these are the users whom `grouping` would let share.
    Messages are attacked as `audit.messages` says: single ones with the solver `sgd`, sums with
    the run's solver.

    With `grouping` "audit", who passes is what each party would really decide, with public
    knowledge only (`attacks.self_audit`). Otherwise nobody audits itself, and who would pass is
    read off the attacks made here, which know other people's ratings as well and find more.

    Scales with many levels are attacked in coarser steps, which the first sentence then says.
    """
    settings = resolve_mask(settings, has_features=ratings.has_features)
    attacked, note = coarser(ratings)
    found, run = investigate(attacked, settings, progress)
    return AuditResult(
        data=ratings.name,
        synthetic=ratings.synthetic,
        simulated=True,
        settings=settings.to_dict(),
        protection=AGGREGATIONS[settings.scheme_name].disclosure(settings),
        version=__version__,
        versions=versions(),
        recovered_share=RECOVERED,
        audit_limit=settings.audit_limit,
        grouping=found.grouping(),
        privacy=found.privacy(run.masks.variances),
        groups=found.groups(),
        messages={name: tuple(map(outcome, made)) for name, made in found.messages.items()},
        sentences=(*note, *found.sentences()),
        verdicts=found.verdicts(),
        recovered_users=found.n_recovered(),
        j=histogram(found.j),
        tradeoff=found.with_recovered(tradeoff(run.cost_input, found.j)),
    )


def coarser(ratings: Ratings) -> tuple[Ratings, tuple[str, ...]]:
    """Return the same ratings on a scale that attacks can weigh level by level.

    Returns:
        The ratings, unchanged but for the step of their scale, and what a reader must know of it.
    """
    scale = ratings.scale
    most = int(np.clip(_CELLS // max(ratings.n_ratings, 1), *_LEVELS))
    if scale.n_levels <= most:
        return ratings, ()
    coarse = replace(scale, step=scale.span / (most - 1))
    note = (
        f"The scale {scale} has {scale.n_levels:,} levels, more than attacks can weigh: they ran "
        f"in steps of {coarse.step:.4g}, and a rating counts as found if it is within half of "
        "that. Attacks that look for whole steps (shift, decode, inversion of unknown strength) "
        "find less in this way than they could: read their figures as lower bounds."
    )
    return replace(ratings, scale=coarse), (note,)


def investigate(
    ratings: Ratings, settings: Settings, progress: Told = _silent
) -> tuple[AuditFindings, Prepared]:
    """Run all attacks; return their findings with the run that they were tried on."""
    settings = resolve_mask(settings, has_features=ratings.has_features)
    _require_enough(ratings.n_users, settings)
    attacks = attacks_on("masked ratings", settings.mask)
    steps = Steps(1 + len(attacks) + 1 + n_steps(settings, ratings.n_users), progress)
    steps.tell("masks")
    run = prepare(ratings, settings)
    view, results = expose(run), []
    for attack in attacks:
        steps.tell(f"attack {attack.name} on masked ratings")
        results.append(attack.run(view, run.training.values, settings.seed))
    found = [result.success for result in on_ratings(results, settings.mask)]
    exposed = np.max(found, axis=0)  # (n_users,)
    steps.tell("who may share")
    passes = _passes_audit(run, exposed)
    messages = attack_messages(run, view, steps.tell)
    return AuditFindings(settings, run.masks.j_train, exposed, passes, results, messages), run


class Steps:
    """Counts steps and reports each to a callback."""

    def __init__(self, total: int, progress: Told) -> None:
        self._begun, self._total, self._progress = 0, total, progress

    def tell(self, what: str) -> None:
        """Report that a step begins, and so that all before it are done."""
        self._progress(what, self._begun, self._total)
        self._begun += 1


def _passes_audit(run: Prepared, exposed: Array) -> Array:
    """Whether a user's own audit would let it share in the clear; see `audit`. (n_users,) bool."""
    settings = run.settings
    if settings.grouping != "audit":
        return np.asarray(exposed < settings.audit_limit)
    if settings.scheme.in_clear == "some":
        return run.in_clear
    private = Private(run.lists, run.training.values, run.masks, run.features.seen)
    own = AttackAudit(settings.audit_limit, settings.engine).shares_found(private)
    return np.asarray(own < settings.audit_limit)


def _require_enough(n_users: int, settings: Settings) -> None:
    least = settings.smallest_cohort
    if n_users < least:
        raise DataError(
            f"an audit attacks secure sums, which need at least {least} users; got {n_users}. "
            "Add users"
        )
