"""Natural logarithms of whole numbers, the same to the last bit on every machine.

Scores are rounded sums of logarithms, so that a last bit can decide. This is the method of Sun's
fdlibm, which upstream's language uses on amd64: with x = 2^k * (1 + f) and 1 + f within a factor
of sqrt(2) of 1, log(1 + f) is computed from s = f / (2 + f) by a polynomial in s^2.

Source: FreeBSD lib/msun/src/e_log.c; Go 1.24 src/math/log.go.
"""

from __future__ import annotations

from math import frexp

import numpy as np
from numpy.typing import NDArray

_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_ODD = (6.666666666666735130e-01, 2.857142874366239149e-01, 1.818357216161805012e-01)
_LAST_ODD = 1.479819860511658591e-01
_EVEN = (3.999999999940941908e-01, 2.222219843214978396e-01, 1.531383769920937332e-01)
_HALF_ROOT = 0.70710678118654752440


def logarithm(number: int) -> float:
    """Return the natural logarithm of a number above 0."""
    mantissa, exponent = frexp(number)
    if mantissa < _HALF_ROOT:
        mantissa, exponent = mantissa * 2, exponent - 1
    f = mantissa - 1
    s = f / (2 + f)
    square = s * s
    fourth = square * square
    odd = square * (_ODD[0] + fourth * (_ODD[1] + fourth * (_ODD[2] + fourth * _LAST_ODD)))
    even = fourth * (_EVEN[0] + fourth * (_EVEN[1] + fourth * _EVEN[2]))
    half_square = 0.5 * f * f
    rest = s * (half_square + (odd + even)) + exponent * _LN2_LOW
    return exponent * _LN2_HIGH - ((half_square - rest) - f)


class DomainWeights:
    """The weight of a count among n domains, log(n + 2), for each n; float64[n]."""

    __slots__ = ("_weights",)

    def __init__(self) -> None:
        self._weights: NDArray[np.float64] = np.zeros(0, dtype=np.float64)

    def up_to(self, number: int) -> NDArray[np.float64]:
        """Return the weights of 0 to `number` domains and maybe more."""
        if len(self._weights) <= number:
            values = [logarithm(n + 2) for n in range(2 * number + 1)]
            self._weights = np.array(values, dtype=np.float64)
        return self._weights
