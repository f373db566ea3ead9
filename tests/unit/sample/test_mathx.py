"""The fixed-bit logarithm and exponential against exact arithmetic, and bit patterns that any port must give."""

import decimal
import hashlib
import math

import numpy as np
import pytest

from freehold.sample import mathx


def largest_error_ulps(got: np.ndarray, exact: list[decimal.Decimal]) -> float:
    """Largest distance from exact values, in units in the last place of the exact value."""
    return max(
        float(abs(decimal.Decimal(float(g)) - e) / decimal.Decimal(math.ulp(float(e))))
        for g, e in zip(got, exact, strict=True)
    )


@pytest.fixture(autouse=True)
def _precision():
    with decimal.localcontext(decimal.Context(prec=60)):
        yield


def log_inputs() -> np.ndarray:
    rng = np.random.default_rng(0)
    near_one = np.concatenate([1.0 - np.ldexp(1.0, -np.arange(2, 53)), 1.0 + np.ldexp(1.0, -np.arange(2, 52))])
    return np.concatenate(
        [
            rng.random(3000),
            rng.random(500) * 40,
            np.ldexp(rng.random(500), rng.integers(-300, 300, 500)),
            near_one,
            [2.0**-53, 2.0**-1022],
        ]
    )


def exp_inputs() -> np.ndarray:
    rng = np.random.default_rng(1)
    halves = -np.arange(200) * (math.log(2) / 2)
    return -np.concatenate([rng.random(2000), rng.random(1000) * 40, rng.random(500) * 708, [0.0, 708.0], -halves])


def test_log_is_accurate() -> None:
    x = log_inputs()
    assert largest_error_ulps(mathx.log(x), [decimal.Decimal(float(v)).ln() for v in x]) < 1.5


def test_log_of_one_is_zero() -> None:
    assert mathx.log(np.array([1.0]))[0] == 0.0


def test_exp_is_accurate() -> None:
    x = exp_inputs()
    assert largest_error_ulps(mathx.exp(x), [decimal.Decimal(float(v)).exp() for v in x]) < 1.5


def test_exp_vanishes_far_below_zero() -> None:
    assert mathx.exp(np.array([-708.0]))[0] > 0.0
    assert np.array_equal(mathx.exp(np.array([-708.5, -1e300, -np.inf])), np.zeros(3))


def test_bits_never_change() -> None:
    """A change of any bit would break replay of recorded answers."""
    digest = hashlib.sha256(mathx.log(log_inputs()).tobytes() + mathx.exp(exp_inputs()).tobytes()).hexdigest()
    assert digest == "a8067a677c850ca187d91bc9310ca9f10cfc0f779a423873860aba7d8fc107b4"


def test_array_length_does_not_matter() -> None:
    """Vector loops and their tails must agree."""
    x = log_inputs()[:64]
    assert [mathx.log(x[i : i + 1])[0] for i in range(64)] == list(mathx.log(x))
    assert [mathx.exp(-x[i : i + 1])[0] for i in range(64)] == list(mathx.exp(-x))
