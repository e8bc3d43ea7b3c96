"""What a party adds to sums before the first round (surveys) and after the last one (newcomers)."""

from typing import TYPE_CHECKING

import numpy as np

from fedmmf.aggregation.contract import Contribution
from fedmmf.arrays import Array
from fedmmf.data.rated_items import RatedItems
from fedmmf.engines.contract import Cohort
from fedmmf.errors import WireError
from fedmmf.wire import Round, Survey

if TYPE_CHECKING:
    from fedmmf.party.run import PartyRun

REFUSALS = (WireError, np.linalg.LinAlgError)  # raised by a broadcast, whatever users rated


def answer_survey(run: "PartyRun", work: Survey, cohort: Cohort) -> Contribution:
    """Compute the users' part of a survey."""
    _check_survey(run, work)
    return _moments(run, work, cohort) if len(work.items) else _rows(run, work, cohort)


def _check_survey(run: "PartyRun", work: Survey) -> None:
    """Refuse a survey that its owner does not allow, or that comes at the wrong time."""
    if run.policy.noise is not None:
        raise WireError("this party adds noise to what it says; a survey has none")
    if work.with_ratings and not run.policy.survey_ratings:
        raise WireError("this party's owner lets no ratings out, not even in a survey's sums")
    if work.with_ratings and run.layout is None:
        raise WireError("a survey of ratings needs a layout first; this party has adopted none")
    if run.current.state.at.last_round:
        raise WireError("a survey comes before the first round")


def _rows(run: "PartyRun", work: Survey, cohort: Cohort) -> Contribution:
    """Return which items are rated or, if allowed, the ratings around the scale's middle."""
    lists, values = _described(run, work)
    rows = np.asarray(values, np.float32)[:, np.newaxis]
    rows = cohort.in_steps(rows) if cohort.is_fixed else rows
    n_items = run.sizes(work).n_items
    total = np.zeros((n_items, 1), rows.dtype)
    np.add.at(total, lists.items, rows)
    items, counts = counted(lists.counts(n_items), cohort.left_out)
    return Contribution(items, counts, total[items], cohort.totals_in_steps(np.zeros(0)))


def _described(run: "PartyRun", work: Survey) -> tuple[RatedItems, Array]:
    """Return what a survey asks for: items of each user, and a value for each. (n,)."""
    users, scale = run.users, run.catalogue.scale
    if work.with_ratings:
        return users.summed_lists, scale.to_unit(users.summed_values) - 0.5
    return users.lists, np.ones(len(users.ratings))


def _moments(run: "PartyRun", work: Survey, cohort: Cohort) -> Contribution:
    """Compute the users' part of the population statistics, over one list of items in a run.

    Moments over two lists would differ by what a few items add. They come before the layout:
    after it, users have chosen whether to be in the clear.
    """
    if run.layout is not None:
        raise WireError("moments are summed before there is a layout; this party has one")
    run.require_same_items(work.items)
    run.current.move(moments_of=work.items)
    columns, min_raters = run.invitation.columns, run.expectation.min_raters
    nothing = cohort.totals_in_steps(np.zeros(run.sizes(work).n_totals))
    blocks = run.users.totals(work.items, columns, min_raters)
    totals = sum((cohort.totals_in_steps(some).sum(axis=0) for some in blocks), nothing)
    return _totals_alone(np.asarray(totals))


def answer_last_round(run: "PartyRun", work: Round, cohort: Cohort) -> Contribution:
    """Compute the users' part of what the prior of newcomers is made from; p_u stays.

    Once in a run, after rounds that the party took part in; no round may follow.
    """
    at, shape = run.current.state.at, run.update_shape
    if not shape.n_newcomer or run.layout is None:
        raise WireError(f"the last round of {run.solver.name!r} only hands out the result")
    if run.policy.noise is not None:
        raise WireError("this party adds noise to what it says; the sum for newcomers has none")
    if at.is_finished or at.has_told_newcomers or not 0 < at.last_round < work.round:
        raise WireError("the sum for newcomers comes once, after the rounds of a training")
    run.remember_best(work)
    run.current.move(last_round=work.round, has_told_newcomers=True)
    try:
        totals = run.users.newcomer_totals(work.broadcast.take(run.layout.items), cohort)
    except REFUSALS:  # as in a round, zeros where the broadcast decides it
        totals = np.zeros(shape.n_newcomer)
    return _totals_alone(totals)


def _totals_alone(totals: Array) -> Contribution:
    no_items, rows = np.zeros(0, np.int32), np.zeros((0, 1), np.float32)
    return Contribution(no_items, np.zeros(0, np.int64), rows, totals)


def counted(counts: Array, left_out: Array | None) -> tuple[Array, Array]:
    """Items that are summed, and how many users rated each."""
    if left_out is not None:
        counts = np.where(left_out, 0, counts)
    items = np.flatnonzero(counts).astype(np.int32)
    return items, counts[items]
