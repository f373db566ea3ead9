"""Filters, masks, greedy ties, and the distribution that Gumbel-max draws from."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freehold.backends.base import RowSampling
from freehold.sample.digest import digest_logits
from freehold.sample.sampler import allowed_ids, keep
from freehold.sample.sampler import sample as sample_by_rules

OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
PLAIN = OFF | {"seed": 0, "choice": 0, "pos": 0}


def sample(logits: np.ndarray, *, pos: int, allowed: np.ndarray | None = None, **rules) -> int:
    return sample_by_rules(logits, RowSampling(**rules), pos=pos, allowed=allowed)


def rules_of(**filters) -> RowSampling:
    return RowSampling(**OFF | filters, seed=0, choice=0)


def f32(values) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def kept_ids(logits, **filters) -> list[int]:
    logits = f32(logits)
    return sorted(int(i) for i in keep(logits, np.arange(logits.size), rules_of(**filters))[0])


def mask_of(ids, vocab_size: int) -> np.ndarray:
    mask = np.zeros((vocab_size + 31) // 32, dtype=np.uint32)
    for i in ids:
        mask[i // 32] |= np.uint32(1 << (i % 32))
    return mask


def probabilities(logits: np.ndarray, temperature: float) -> np.ndarray:
    scaled = (logits.astype(np.float64) - logits.max()) / temperature
    return np.exp(scaled) / np.exp(scaled).sum()


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def test_greedy_takes_the_highest_and_among_equals_the_lowest_id() -> None:
    assert sample(f32([1, 3, 2, 3]), **PLAIN | {"temperature": 0.0}) == 1
    assert sample(f32([-0.0, 0.0]), **PLAIN | {"temperature": 0.0}) == 0


@pytest.mark.parametrize("filters", [{}, {"top_k": 1}, {"top_p": 0.0}, {"min_p": 1.0}])
def test_filters_that_keep_one_token_equal_greedy(filters) -> None:
    logits = np.random.default_rng(0).normal(size=300).astype(np.float32)
    for pos in range(20):
        picked = sample(logits, **PLAIN | {"pos": pos, "temperature": 1.0 if filters else 0.0} | filters)
        assert picked == int(logits.argmax())


@pytest.mark.parametrize("temperature", [1e-300, 5e-324, 1e-6])
def test_tiny_temperatures_approach_greedy_without_overflow(temperature) -> None:
    assert sample(f32([3e38, -3e38, 3.1e38]), **PLAIN | {"temperature": temperature, "top_p": 0.9, "min_p": 0.1}) == 2


def test_top_k_breaks_ties_by_id() -> None:
    assert kept_ids([5, 7, 5, 5, 1], top_k=3) == [0, 1, 2]
    assert kept_ids([0.0, -0.0, 0.0], top_k=2) == [0, 1]


@pytest.mark.parametrize("top_k", [0, 5, 6, 10**9])
def test_top_k_at_or_above_the_vocabulary_keeps_all(top_k) -> None:
    assert kept_ids([5, 7, 5, 5, 1], top_k=top_k) == [0, 1, 2, 3, 4]


def test_top_p_keeps_the_smallest_sufficient_prefix() -> None:
    logits = np.log([0.5, 0.25, 0.125, 0.125])
    assert kept_ids(logits, top_p=0.0) == [0]
    assert kept_ids(logits, top_p=0.49) == [0]
    assert kept_ids(logits, top_p=0.51) == [0, 1]
    assert kept_ids(logits, top_p=0.76) == [0, 1, 2]
    assert kept_ids([1, 1, 1, 1], top_p=0.5) == [0, 1]
    assert kept_ids([1, 1, 1, 1], top_p=1.0) == [0, 1, 2, 3]


def test_min_p_compares_with_the_likeliest_after_temperature() -> None:
    logits = np.log([0.6, 0.3, 0.07, 0.03])
    assert kept_ids(logits, min_p=0.2) == [0, 1]
    assert kept_ids(logits, min_p=0.2, temperature=2.0) == [0, 1, 2, 3]
    assert kept_ids(logits, min_p=5e-324) == [0, 1, 2, 3]


def test_top_p_counts_the_mass_of_what_top_k_and_min_p_left() -> None:
    logits = np.log([0.4, 0.3, 0.2, 0.1])
    assert kept_ids(logits, top_p=0.55) == [0, 1]
    assert kept_ids(logits, top_p=0.55, top_k=2) == [0]
    assert kept_ids(logits, top_p=0.55, min_p=0.6) == [0]


@given(
    logits=st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=80),
    temperature=st.floats(0.05, 5),
    top_k=st.integers(0, 90),
    top_p=st.floats(0, 1),
    min_p=st.floats(0, 1),
    allowed=st.sets(st.integers(0, 79), min_size=1),
    pos=st.integers(0, 2**31 - 1),
)
def test_any_filters_keep_the_best_allowed_token_and_sample_only_kept(
    logits, temperature, top_k, top_p, min_p, allowed, pos
) -> None:
    logits = f32(logits)
    mask = mask_of(allowed, 80)
    ids = sorted(i for i in allowed if i < logits.size)
    if not ids:
        with pytest.raises(ValueError, match="allows no token"):
            allowed_ids(mask, logits.size)
        return
    filters = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    kept, scaled = keep(logits, np.array(ids), rules_of(**filters))
    best = max(ids, key=lambda i: (logits[i], -i))
    assert best in kept
    assert set(kept.tolist()) <= set(ids)
    assert np.isfinite(scaled).all()
    assert logits[kept].min() >= max((logits[i] for i in ids if i not in kept), default=-np.inf)
    assert sample(logits, **filters, seed=5, choice=2, pos=pos, allowed=mask) in kept


def test_a_full_mask_changes_nothing_and_masks_apply_before_the_maximum() -> None:
    logits = np.random.default_rng(3).normal(size=77).astype(np.float32)
    full = mask_of(range(77), 77)
    for pos in range(50):
        params = PLAIN | {"pos": pos, "top_p": 0.8, "min_p": 0.05}
        assert sample(logits, **params) == sample(logits, **params, allowed=full)
    assert sample(f32([100, 1, 2]), **PLAIN | {"min_p": 0.9}, allowed=mask_of([1, 2], 3)) == 2


def test_frequencies_match_softmax() -> None:
    """Chi-square over 3,000 positions; 43.8 is the 99.9 % quantile for 19 degrees of freedom."""
    logits = (np.random.default_rng(7).normal(size=20) * 1.5).astype(np.float32)
    for temperature, seed in [(1.0, 1), (0.6, 2), (1.7, 2**63 + 5)]:
        draws = [
            sample(logits, **PLAIN | {"temperature": temperature, "seed": seed, "pos": pos}) for pos in range(3000)
        ]
        expected = probabilities(logits, temperature) * len(draws)
        assert chi_square(np.bincount(draws, minlength=20), expected) < 43.8


@pytest.mark.parametrize("vary", ["seed", "choice", "pos"])
def test_frequencies_match_softmax_however_draws_are_numbered(vary) -> None:
    logits = f32([0.0, 1.0, -1.0, 0.5, 2.0])
    draws = [sample(logits, **PLAIN | {vary: i}) for i in range(3000)]
    expected = probabilities(logits, 1.0) * len(draws)
    assert chi_square(np.bincount(draws, minlength=5), expected) < 18.5  # 99.9 %, 4 degrees of freedom


def test_neighbouring_positions_are_independent() -> None:
    """Pairs of consecutive draws over two equal tokens: four equal cells."""
    draws = np.array([sample(f32([0, 0]), **PLAIN | {"pos": pos}) for pos in range(4000)])
    cells = np.bincount(draws[0::2] * 2 + draws[1::2], minlength=4)
    assert chi_square(cells, np.full(4, 500.0)) < 16.3  # 99.9 %, 3 degrees of freedom


def test_digest_sees_any_bit_and_any_swap() -> None:
    logits = np.random.default_rng(1).normal(size=500).astype(np.float32)
    digest = digest_logits(logits)
    assert 0 <= digest < 2**64
    assert digest == digest_logits(logits.copy())
    flipped = logits.copy()
    flipped.view(np.uint32)[137] ^= 1
    swapped = logits.copy()
    swapped[[3, 4]] = swapped[[4, 3]]
    negative_zero = np.array([0.0, 1.0], dtype=np.float32), np.array([-0.0, 1.0], dtype=np.float32)
    assert len({digest, digest_logits(flipped), digest_logits(swapped)}) == 3
    assert digest_logits(negative_zero[0]) != digest_logits(negative_zero[1])
