"""Noise exactly as the accounting assumes it: the discrete Gaussian, drawn by OpenDP.

OpenDP draws by the rejection sampler of Canonne, Kamath and Steinke 2020 (algorithm 3) in whole
numbers and fractions of any size, from the random bytes of OpenSSL. Nothing is rounded, so nothing
of Mironov 2012 applies. It has no seed: two draws never agree.
"""

from typing import Any

import numpy as np

from fedmmf.arrays import Array
from fedmmf.errors import SettingsError


def discrete_gaussian(n: int, sigma: float) -> Array:
    """Draw independent integers, each x with probability proportional to exp(-x^2 / 2 sigma^2).

    Args:
        n: how many.
        sigma: any positive float64, taken as the fraction that it is.

    Returns:
        (n,) int64
    """
    opendp = _opendp()
    space = opendp.domains.vector_domain(opendp.domains.atom_domain(T="i64"))
    distance = opendp.metrics.l2_distance(T="i64")
    mechanism = opendp.measurements.make_gaussian(space, distance, sigma)
    return np.array(mechanism([0] * n), np.int64)


def _opendp() -> Any:
    try:
        import opendp
        import opendp.domains
        import opendp.measurements
        import opendp.metrics
    except ImportError:
        raise SettingsError(
            "noise is drawn by opendp, which is not installed: pip install 'fedmmf[dp]'"
        ) from None
    opendp.mod.enable_features("contrib")  # OpenDP's code without a formal proof, vetted by people
    return opendp
