"""Float64 logarithm and exponential whose every bit is fixed.

A math library's `log` and `exp` differ in the last bit from machine to machine, and one bit can change which token is
sampled. These two use nothing but IEEE 754 add, subtract, multiply, divide (round to nearest, never fused) and bit
moves, in the order written here, so that native code compiled with ``-ffp-contract=off`` gives the same bits.
Errors measured against correctly rounded values stay below 1.5 units in the last place (see the tests).
"""

import numpy as np
from numpy.typing import NDArray

LN2_HIGH = float.fromhex("0x1.62e42feep-1")
"""ln 2 cut to 32 bits: a product with an integer below 2**20 is exact."""
LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
"""ln 2 - LN2_HIGH, rounded."""
LOG2_E = float.fromhex("0x1.71547652b82fep+0")
ROUNDING_SHIFT = float.fromhex("0x1.8p+52")
"""Adding and subtracting 1.5 * 2**52 rounds a small number to an integer, ties to even."""
SQRT2_MANTISSA = 0x6A09E667F3BCD
"""Fraction bits of sqrt(2), rounded up: mantissas at or above are halved so that they lie around 1."""

LOG_COEFFICIENTS = tuple(2.0 / (2 * i + 3) for i in range(10))
"""2/3, 2/5 … 2/21: log(m) = 2 s + s z (2/3 + z (2/5 + …)), with s = (m-1)/(m+1), z = s s, |s| < 0.172."""
EXP_COEFFICIENTS = (
    1.0,
    1.0,
    1 / 2,
    1 / 6,
    1 / 24,
    1 / 120,
    1 / 720,
    1 / 5040,
    1 / 40320,
    1 / 362880,
    1 / 3628800,
    1 / 39916800,
    1 / 479001600,
    1 / 6227020800,
)
"""1/n! for n = 0 … 13: enough for |r| <= ln(2) / 2."""

EXP_LOWEST = -708.0
"""Below, `exp` is 0 (the true value is under 1e-307); this keeps the power of two a normal number."""

_FRACTION_MASK = np.uint64(0x000FFFFFFFFFFFFF)
_ONE_BITS = np.uint64(0x3FF0000000000000)
_HALF_BITS = np.uint64(0x3FE0000000000000)


def log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Natural logarithm, element by element. `x` must be positive, normal and finite.

    ``x = 2**k * m`` with m in [sqrt(1/2), sqrt(2)); then, with products and sums in this order,
    ``k*LN2_HIGH + (2*s + (s*(z*p) + k*LN2_LOW))`` where p is Horner's rule on `LOG_COEFFICIENTS` from the last one.
    """
    bits = x.view(np.uint64) if x.flags.c_contiguous else np.ascontiguousarray(x).view(np.uint64)
    fraction = bits & _FRACTION_MASK
    halve = fraction >= np.uint64(SQRT2_MANTISSA)
    k = ((bits >> np.uint64(52)).astype(np.int64) - 1023 + halve).astype(np.float64)
    m = (fraction | np.where(halve, _HALF_BITS, _ONE_BITS)).view(np.float64)
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    p = np.full_like(z, LOG_COEFFICIENTS[-1])
    for coefficient in reversed(LOG_COEFFICIENTS[:-1]):
        p = p * z + coefficient
    return k * LN2_HIGH + (2.0 * s + (s * (z * p) + k * LN2_LOW))


def exp(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Exponential, element by element, for ``x <= 0`` (minus infinity included); 0 below `EXP_LOWEST`.

    ``k = (x*LOG2_E + ROUNDING_SHIFT) - ROUNDING_SHIFT``, ``r = (x - k*LN2_HIGH) - k*LN2_LOW``, Horner's rule on
    `EXP_COEFFICIENTS` from the last one, then an exact product with 2**k.
    """
    in_range = x >= EXP_LOWEST
    x = np.where(in_range, x, 0.0)
    k = (x * LOG2_E + ROUNDING_SHIFT) - ROUNDING_SHIFT
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    p = np.full_like(r, EXP_COEFFICIENTS[-1])
    for coefficient in reversed(EXP_COEFFICIENTS[:-1]):
        p = p * r + coefficient
    power = ((k.astype(np.int64) + 1023).astype(np.uint64) << np.uint64(52)).view(np.float64)
    return np.where(in_range, p * power, 0.0)
