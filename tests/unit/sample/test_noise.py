"""Philox against its published vectors, and the noise made from it."""

import numpy as np
import pytest

from freehold.sample import noise

ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # known-answer vectors published with Random123
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((ONES, ONES, ONES, ONES), (ONES, ONES), "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_known_answers(counter, key, expected) -> None:
    words = noise.philox((np.array([counter[0]], dtype=np.uint64), *counter[1:]), key)
    assert " ".join(f"{int(word[0]):08x}" for word in words) == expected


def test_every_part_of_the_key_and_counter_matters() -> None:
    ids = np.arange(64)
    base = {"seed": 1, "choice": 0, "pos": 5}
    variants = [base, base | {"seed": 2}, base | {"seed": 1 + 2**32}, base | {"choice": 1}, base | {"pos": 6}]
    draws = np.concatenate([noise.uniform(ids, **v) for v in variants])
    assert np.unique(draws).size == draws.size


def test_noise_depends_on_the_id_alone_not_its_place() -> None:
    everything = noise.gumbel(np.arange(1000), seed=3, choice=1, pos=9)
    some = np.array([999, 0, 512, 7])
    assert np.array_equal(noise.gumbel(some, seed=3, choice=1, pos=9), everything[some])


def test_uniform_is_never_zero_or_one(monkeypatch) -> None:
    for word in (0, ONES):
        words = tuple(np.array([word], dtype=np.uint64) for _ in range(4))
        monkeypatch.setattr(noise, "philox", lambda *_, words=words: words)
        u = noise.uniform(np.array([0]), seed=0, choice=0, pos=0)[0]
        assert u == (2.0**-53 if word == 0 else 1.0 - 2.0**-53)
        assert np.isfinite(noise.gumbel(np.array([0]), seed=0, choice=0, pos=0)[0])


def test_gumbel_has_the_right_distribution() -> None:
    """Kolmogorov-Smirnov distance to exp(-exp(-x)); 1.63 / sqrt(n) is its 99 % quantile."""
    n = 100_000
    draws = np.sort(noise.gumbel(np.arange(n), seed=11, choice=0, pos=0))
    distance = np.abs(np.exp(-np.exp(-draws)) - (np.arange(n) + 0.5) / n).max()
    assert distance < 1.63 / np.sqrt(n)
