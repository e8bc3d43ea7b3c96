"""A party's side of plain aggregation."""

import numpy as np

from fedmmf.aggregation.contract import HELD_OUT_TOTALS, Work
from fedmmf.aggregation.party_side import PartySide
from fedmmf.errors import WireError
from fedmmf.wire import Ask, Survey, Update


class PlainParty(PartySide):
    """Sends its update in the clear, if its owner allows it."""

    answers = (Ask,)

    def answer(self, message: Ask) -> Update:
        """Return this party's update or survey answer in the clear."""
        work = self.context.work(message.about)
        self._require_allowed(work)
        part = self.context.contribute(work, None, None, n_parties=1)
        counts = part.counts if (part.counts != 1).any() else part.counts[:0]
        round_, totals = 0 if isinstance(work, Survey) else work.round, part.totals
        if round_ and self.context.policy.noise is None:
            # One update with totals of p_u would reveal the masked ratings.
            totals = np.concatenate((totals[:HELD_OUT_TOTALS], 0 * totals[HELD_OUT_TOTALS:]))
        return Update(round_, part.items, counts, np.asarray(part.rows, np.float32), totals)

    def _require_allowed(self, work: Work) -> None:
        """Raise `WireError` unless the party's owner allows this answer in the clear."""
        context, noise = self.context, self.context.policy.noise
        if noise is not None:
            noise.check_sum(1, 1)  # only noise that each party adds for itself protects here
            return
        if isinstance(work, Survey):
            if not (context.policy.sharing == "plain" or (context.layout and context.in_clear)):
                raise WireError("this party answers a survey only in sums; its policy says so")
        elif not context.solver.may_be_clear:
            raise WireError(f"updates of {context.solver.name!r} hold masked ratings: only in sums")
        elif not context.in_clear:
            raise WireError("this party sends updates only in sums; its policy says so")
