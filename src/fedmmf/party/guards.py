"""Counters that protect a party's users: they only go up, whatever is restored from a copy.

A party that forgot what it has answered would answer it again: a noisy update twice, with fresh
noise, for a budget that pays for one; a survey among nearly the same parties. So its owner keeps
these counters apart from its state, and never puts an older copy of them back.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Surveys = frozenset[tuple[str, frozenset[bytes]]]


@dataclass(frozen=True)
class Guards:
    """Counters of a party's answers in all runs.

    Attributes:
        n_noisy: updates with noise that have left.
        rho_spent: what they cost, in concentrated differential privacy. Trainings differ in the
            noise of a round, so that numbers of rounds cannot be held against one another.
        runs: names of the runs that it has joined, in their order.
        last_round: the last round that it answered in the last of these runs.
        surveyed: surveys that it has unmasked: what was asked, among whom.
        mates: identities of its batch.
    """

    n_noisy: int = 0
    rho_spent: float = 0.0
    runs: tuple[bytes, ...] = ()
    last_round: int = 0
    surveyed: Surveys = frozenset()
    mates: tuple[bytes, ...] = ()

    def raised(self, newer: "Guards") -> "Guards":
        """Return the higher of each counter.

        Rounds of two runs cannot be compared: where the last runs differ, `last_round` is that of
        `newer`, whose last run has to be the later one.
        """
        is_same_run = newer.runs[-1:] in ((), self.runs[-1:])
        return Guards(
            n_noisy=max(self.n_noisy, newer.n_noisy),
            rho_spent=max(self.rho_spent, newer.rho_spent),
            runs=tuple(dict.fromkeys((*self.runs, *newer.runs))),
            last_round=max(self.last_round, newer.last_round) if is_same_run else newer.last_round,
            surveyed=self.surveyed | newer.surveyed,
            mates=newer.mates or self.mates,
        )

    @property
    def of_budget(self) -> "Guards":
        """What was spent of a privacy budget, and nothing else."""
        return Guards(n_noisy=self.n_noisy, rho_spent=self.rho_spent)

    def lead_over(self, state: "Guards") -> str:
        """Describe what these counters have beyond a state's; empty: nothing."""
        is_same_run = self.runs[-1:] == state.runs[-1:]
        leads = (
            (
                self.n_noisy > state.n_noisy,
                f"{self.n_noisy} noisy updates have left, and the state knows of {state.n_noisy}",
            ),
            (
                not set(self.runs[-1:]) <= set(state.runs),
                f"{len(self.runs)} trainings were joined, and the state knows of {len(state.runs)}",
            ),
            (
                is_same_run and self.last_round > state.last_round,
                f"round {self.last_round} was answered, and the state is at round "
                f"{state.last_round}",
            ),
            (
                not self.surveyed <= state.surveyed,
                f"{len(self.surveyed)} surveys were answered, and the state knows of "
                f"{len(state.surveyed)}",
            ),
            (
                self.mates not in ((), state.mates),
                "a batch of parties was agreed on that the state does not know",
            ),
        )
        return next((words for is_ahead, words in leads if is_ahead), "")

    def as_json(self) -> dict[str, Any]:
        """Return the counters as JSON for a file."""
        return {
            "noisy_updates": self.n_noisy,
            "rho_spent": self.rho_spent,
            "runs": [run.hex() for run in self.runs],
            "last_round": self.last_round,
            "surveys": [
                {"asks": asks, "identities": sorted(key.hex() for key in identities)}
                for asks, identities in sorted(self.surveyed, key=lambda one: (one[0], len(one[1])))
            ],
            "mates": [key.hex() for key in self.mates],
        }

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> "Guards":
        """Read what `as_json` wrote; raises KeyError, TypeError or ValueError for anything else."""
        n_noisy, last_round = int(said["noisy_updates"]), int(said["last_round"])
        rho_spent = float(said["rho_spent"])
        if not min(n_noisy, last_round, rho_spent) >= 0:  # NaN is not
            raise ValueError("counters are 0 or more")
        return cls(
            n_noisy=n_noisy,
            rho_spent=rho_spent,
            runs=tuple(map(bytes.fromhex, said["runs"])),
            last_round=last_round,
            surveyed=frozenset(
                (str(one["asks"]), frozenset(map(bytes.fromhex, one["identities"])))
                for one in said["surveys"]
            ),
            mates=tuple(map(bytes.fromhex, said["mates"])),
        )
