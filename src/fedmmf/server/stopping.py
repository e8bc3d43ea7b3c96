"""When to stop: held-out error, summed over parties, and how long it has not improved."""

import math
from dataclasses import dataclass, field


@dataclass
class EarlyStop:
    """Remembers the best round; without held-out ratings no round is ever the best."""

    patience: int
    best_round: int = 0
    best_rmse: float = math.inf
    history: list[float] = field(default_factory=list)  # held-out RMSE of each round

    def observe(self, squared_error: float, n_held_out: float) -> bool:
        """Take in one round's sums; return whether it is the best so far."""
        is_sound = n_held_out >= 1 and 0 <= squared_error < math.inf  # sums of anybody's numbers
        rmse = math.sqrt(squared_error / n_held_out) if is_sound else math.nan
        self.history.append(rmse)
        if not rmse < self.best_rmse:
            return False
        self.best_round, self.best_rmse = len(self.history), rmse
        return True

    @property
    def is_over(self) -> bool:
        """Whether `patience` rounds have passed since the best one; lost ones do not count."""
        since = sum(map(math.isfinite, self.history[self.best_round :]))
        return self.best_round > 0 and since >= self.patience
