"""From logits to a token id, in numpy: the definition that native samplers reproduce bit for bit.

Order of work: bias and penalties (`freehold.sample.adjust`), allowed tokens, min_tokens, greedy or temperature, min_p,
top_k, top_p, Gumbel-max. All arithmetic after the float32 logits is float64, and every sum has one order.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from freehold.sample import mathx, noise
from freehold.sample.adjust import AdjustmentRules, adjust

NO_IDS = np.empty(0, dtype=np.int32)
SMALLEST_MIN_P = 2.0**-1022
"""`mathx.log` takes normal numbers only."""


class SamplingRules(AdjustmentRules, Protocol):
    """What decides about one row; `freehold.backends.base.RowSampling` is one. 0, 1.0 and 0.0 turn the filters off."""

    @property
    def temperature(self) -> float: ...
    @property
    def top_k(self) -> int: ...
    @property
    def top_p(self) -> float: ...
    @property
    def min_p(self) -> float: ...
    @property
    def seed(self) -> int: ...
    @property
    def choice(self) -> int: ...
    @property
    def min_tokens(self) -> int: ...
    @property
    def stop_ids(self) -> Sequence[int]: ...


def sample(
    logits: NDArray[np.float32],
    rules: SamplingRules,
    *,
    pos: int,
    context_ids: NDArray[np.int32] = NO_IDS,
    allowed: NDArray[np.uint32] | None = None,
) -> int:
    """Pick the token that takes absolute position `pos`.

    Args:
        logits: (V,), finite.
        rules: a temperature of 0 is greedy: the highest logit, among equals the lowest id.
        context_ids: (pos,), the ids at all positions before; read only if there are penalties.
        allowed: uint32 (ceil(V / 32),), bit t of the whole set if token t may be picked; None allows all.

    Raises:
        ValueError: no token is allowed.
    """
    logits = adjust(logits, rules, context_ids)
    token_ids = allowed_ids(allowed, logits.size)
    if pos < rules.num_prompt_tokens + rules.min_tokens:
        token_ids = without_stops(token_ids, rules.stop_ids)
    if rules.temperature == 0.0:
        return int(token_ids[np.argmax(logits[token_ids])])
    token_ids, scaled = keep(logits, token_ids, rules)
    perturbed = scaled + noise.gumbel(token_ids, seed=rules.seed, choice=rules.choice, pos=pos)
    return int(token_ids[perturbed == perturbed.max()].min())


def allowed_ids(allowed: NDArray[np.uint32] | None, vocab_size: int) -> NDArray[np.int64]:
    """Allowed token ids, ascending. Raises ValueError if there are none."""
    if allowed is None:
        return np.arange(vocab_size, dtype=np.int64)
    # '<u4' so that bit t of the set is bit t % 8 of byte t // 8 on any machine
    bits = np.unpackbits(allowed.astype("<u4").view(np.uint8), bitorder="little")[:vocab_size]
    token_ids = np.flatnonzero(bits).astype(np.int64)
    if token_ids.size == 0:
        raise ValueError("the mask allows no token")
    return token_ids


def without_stops(token_ids: NDArray[np.int64], stop_ids: Sequence[int]) -> NDArray[np.int64]:
    """Allowed tokens that don't end the answer; all of them if there are no others."""
    others = token_ids[~np.isin(token_ids, stop_ids)]
    return others if others.size else token_ids


def keep(
    logits: NDArray[np.float32], token_ids: NDArray[np.int64], rules: SamplingRules
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Tokens of `token_ids` (ascending) that survive the filters, and their scaled logits.

    ``scaled = (float64(logit) - float64(highest logit)) / temperature``, the highest among `token_ids`, so that no
    temperature overflows. Then, each over the survivors of the one before:

    1. min_p > 0 keeps ``scaled >= log(max(min_p, SMALLEST_MIN_P))``;
    2. top_k > 0 keeps the first `top_k` in the order of logit descending, id ascending;
    3. top_p < 1 keeps, in the same order, the smallest prefix whose mass reaches ``top_p * total``, at least one
       token. A token's mass is ``exp(scaled)``; prefix sums run in that order, one addition a token, and the total is
       the last of them.
    """
    survivors = logits[token_ids]
    highest = np.float64(survivors.max())
    with np.errstate(over="ignore"):  # a tiny temperature gives -inf, which is what it means
        scaled = (survivors.astype(np.float64) - highest) / rules.temperature
    if rules.min_p > 0.0:
        kept = scaled >= mathx.log(np.array([max(rules.min_p, SMALLEST_MIN_P)]))[0]
        token_ids, survivors, scaled = token_ids[kept], survivors[kept], scaled[kept]
    if rules.top_k <= 0 and rules.top_p >= 1.0:
        return token_ids, scaled
    order = np.argsort(-survivors, kind="stable")  # ids ascend, so a stable sort breaks ties by id
    if rules.top_k > 0:
        order = order[: rules.top_k]
    if rules.top_p < 1.0:
        mass = np.add.accumulate(mathx.exp(scaled[order]))  # sequential by definition
        order = order[: int(np.searchsorted(mass, rules.top_p * mass[-1], side="left")) + 1]
    return token_ids[order], scaled[order]
