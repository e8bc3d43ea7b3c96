"""One audit from ratings to a typed result."""

from dataclasses import replace
from functools import partial

import numpy as np

from fedmmf import __version__
from fedmmf.aggregation import AGGREGATIONS
from fedmmf.arrays import Array
from fedmmf.attacks import attacks_on
from fedmmf.attacks.self_audit import AttackAudit
from fedmmf.audit import messages
from fedmmf.audit.deciding import Decision, NoiseCost, offered_epsilon, with_noise
from fedmmf.audit.exposure import drawn_users, expose
from fedmmf.audit.lower_bound import bounds_of
from fedmmf.audit.trials import KeptResults, Trials
from fedmmf.audit.verdicts import RECOVERED, AuditFindings, on_ratings, outcome
from fedmmf.data import Ratings
from fedmmf.errors import DataError, FedMMFError
from fedmmf.masks.fitting import resolve_mask
from fedmmf.masks.indicator import (
    histogram,
    j_follows_variance,
    mean_relative_j,
    privacy_groups,
)
from fedmmf.model import FedMMF
from fedmmf.party.policy import Private
from fedmmf.progress import Report, quiet
from fedmmf.reports.results import AuditResult, PrivacyGroups, versions
from fedmmf.settings import Settings
from fedmmf.simulation import Prepared, prepare
from fedmmf.simulation.costs import tradeoff
from fedmmf.storage.checkpoints import Checkpoint

SAMPLE = 1000  # users whose masked ratings and messages are attacked at most
_CELLS = 6_000_000  # levels times ratings; attacks on sums hold some twenty numbers for each
_LEVELS = (21, 201)  # a scale is never made coarser than the first, nor left finer than the second
_CHEAP = 30_000_000  # ratings times rounds of trainings that an audit runs to price noise


def audit(
    ratings: Ratings,
    settings: Settings,
    progress: Report = quiet,
    *,
    sample: int = SAMPLE,
    checkpoint: Checkpoint | None = None,
) -> AuditResult:
    """Fit the masks as the run would, and attack what a server would get of all planned rounds.

    Masked ratings of users who share in the clear are what a server would hold. Under strict
    sharing these are the users whom `grouping` would let share. Messages are attacked as
    `audit.messages` says: single ones with the solver `sgd`, sums with the run's solver and scheme,
    over all planned rounds, with drop-outs (`audit.following`).

    With `grouping` "audit", who passes is what each party would really decide, with public
    knowledge only (`attacks.self_audit`). Otherwise nobody audits itself, and who would pass is
    read off the attacks made here, which know other people's ratings as well and find more.

    Scales with many levels are attacked in coarser steps, which the first sentence then says.

    Args:
        ratings: that the run would train on.
        settings: of the run.
        progress: called at every step.
        sample: users who are attacked at most, drawn at random; 0: everybody.
        checkpoint: where results of attacks are kept, to go on from after an end.
    """
    settings = resolve_mask(settings, has_features=ratings.has_features)
    attacked, note = coarser(ratings)
    kept = None if checkpoint is None else KeptResults(checkpoint, ratings, settings, sample)
    found, run = investigate(attacked, settings, progress, sample=sample, kept=kept)
    decision = Decision(found, ratings.n_users, _price_of_noise(ratings, settings))
    if kept is not None:
        kept.finish()
    return AuditResult(
        data=ratings.name,
        synthetic=ratings.synthetic,
        simulated=True,
        settings=settings.to_dict(),
        protection=AGGREGATIONS[settings.scheme_name].disclosure(settings),
        version=__version__,
        versions=versions(),
        verdict=decision.verdict(),
        epsilon=found.bounds,
        attacked_users=len(found.exposed),
        recovered_share=RECOVERED,
        audit_limit=settings.audit_limit,
        grouping=found.grouping(),
        privacy=_privacy(run),
        groups=found.groups(),
        messages={name: tuple(map(outcome, made)) for name, made in found.messages.items()},
        sentences=(*note, *found.sentences()),
        verdicts=found.verdicts(),
        recovered_users=found.n_recovered(),
        j=histogram(run.masks.j_train),
        tradeoff=found.with_recovered(tradeoff(run.cost_input, run.masks.j_train)),
    )


def _privacy(run: Prepared) -> PrivacyGroups:
    """The two groups by J, as in a training."""
    j, variances = run.masks.j_train, run.masks.variances
    return PrivacyGroups(
        **privacy_groups(j, run.settings.threshold_j),
        mean_relative_j=mean_relative_j(j, variances),
        j_follows_variance=j_follows_variance(j, variances),
        users_in_clear=int(run.in_clear.sum()),
    )


def _price_of_noise(ratings: Ratings, settings: Settings) -> NoiseCost | None:
    """Train with and without (more) noise on four fifths, where that is cheap.

    Returns:
        Both errors on the last fifth; None: not cheap, or noise does not fit the settings.
    """
    wanted = offered_epsilon(settings)
    if ratings.n_ratings * settings.max_rounds > _CHEAP or settings.objective != "rating":
        return None
    try:
        noisy = with_noise(settings, wanted)
        train, test = ratings.split(test=0.2, seed=settings.seed)
        now, then = (
            FedMMF(**one.model_dump()).fit(train).evaluate(test)["rmse"]
            for one in (settings, noisy)
        )
    except FedMMFError:  # the extra is not installed, or the data are too few
        return None
    return NoiseCost(wanted, then, now)


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
    ratings: Ratings,
    settings: Settings,
    progress: Report = quiet,
    *,
    sample: int = SAMPLE,
    kept: KeptResults | None = None,
) -> tuple[AuditFindings, Prepared]:
    """Run all attacks; return their findings with the run that they were tried on."""
    settings = resolve_mask(settings, has_features=ratings.has_features)
    _require_enough(ratings.n_users, settings)
    attacks = attacks_on("masked ratings", settings.mask)
    sample = sample or ratings.n_users
    has_others = ratings.n_users > min(sample, messages.COHORT)
    n_steps = messages.n_steps(settings, has_others=has_others) + settings.scheme.has_budget
    trials = Trials(1 + len(attacks) + 1 + n_steps, progress, kept)
    trials.tell("masks")
    run = prepare(ratings, settings)
    drawn = drawn_users(run.training, settings.seed, sample)
    everybody = expose(run)
    view = everybody.only(np.isin(everybody.users, drawn))
    truth = run.training.values[everybody.rows_of(np.isin(everybody.users, drawn))]
    results = [
        trials.once(attack.name, "masked ratings", partial(attack.run, view, truth, settings.seed))
        for attack in attacks
    ]
    found = [result.success for result in on_ratings(results, settings.mask)]
    exposed = np.max(found, axis=0)  # (n_drawn,)
    trials.tell("who may share")
    passes = _passes_audit(run, exposed, drawn)
    sent = messages.attack_messages(run, everybody, trials, sample)
    j = run.masks.j_train[drawn]
    found_bounds = None
    if settings.scheme.has_budget:
        trials.tell("a planted user is looked for")
        found_bounds = bounds_of(run)
    return AuditFindings(settings, j, exposed, passes, results, sent, found_bounds), run


def _passes_audit(run: Prepared, exposed: Array, drawn: Array) -> Array:
    """Whether a user's own audit would let it share in the clear; see `audit`. (n_drawn,) bool."""
    settings = run.settings
    if settings.grouping != "audit":
        return np.asarray(exposed < settings.audit_limit)
    if settings.scheme.in_clear == "some":
        return run.in_clear[drawn]
    private = Private(run.lists, run.training.values, run.masks, run.features.seen)
    own = AttackAudit(settings.audit_limit, settings.engine).shares_found(private)
    return np.asarray(own[drawn] < settings.audit_limit)


def _require_enough(n_users: int, settings: Settings) -> None:
    least = settings.smallest_cohort
    if n_users < least:
        raise DataError(
            f"an audit attacks secure sums, which need at least {least} users; got {n_users}. "
            "Add users"
        )
