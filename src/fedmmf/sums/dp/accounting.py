"""How much privacy a run costs. The arithmetic is dp-accounting's (Google), none of it ours."""

import math
from typing import Any

from fedmmf.errors import SettingsError


def epsilon(multiplier: float, rounds: int, delta: float) -> float:
    """Epsilon at `delta` of that many rounds of the Gaussian mechanism.

    Every user takes part in every round: nothing is won by sampling.
    """
    accounting, pld = _tools()
    event = accounting.SelfComposedDpEvent(accounting.GaussianDpEvent(multiplier), rounds)
    return float(pld.PLDAccountant().compose(event).get_epsilon(delta))


def multiplier(epsilon: float, rounds: int, delta: float) -> float:
    """The least noise, over the sensitivity, at which that many rounds cost `epsilon` at most.

    Found for one round: T Gaussian mechanisms are together one whose noise is smaller by sqrt(T)
    (Dong, Roth and Su 2022, Gaussian differential privacy, corollary 3.3).
    """
    _, pld = _tools()
    wanted = pld.common.DifferentialPrivacyParameters(epsilon, delta)
    loss = pld.privacy_loss_mechanism.GaussianPrivacyLoss.from_privacy_guarantee(wanted)
    return float(loss.standard_deviation) * math.sqrt(rounds)


def _tools() -> tuple[Any, Any]:
    try:
        import dp_accounting
        from dp_accounting import pld
    except ImportError:
        raise SettingsError(
            "differential privacy is accounted for by dp-accounting, which is not installed: "
            "pip install 'fedmmf[dp]'"
        ) from None
    return dp_accounting, pld
