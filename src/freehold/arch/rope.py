"""Rotary position encodings: from a configuration to frequencies (Su et al., "RoFormer", 2021)."""

import math

import numpy as np
from numpy.typing import NDArray

from freehold.arch.keys import Keys
from freehold.arch.spec import RopeSpec
from freehold.errors import ModelFileError, UnsupportedModelError, shown

HF_ROPE_TYPES = ("default", "linear", "llama3")
GGUF_ROPE_TYPES = ("none", "linear")
DEFAULT_THETA = 10_000.0


def plain_frequencies(theta: float, rotary_dim: int) -> NDArray[np.float64]:
    """Radians per position of each pair, ``theta ** (-2 i / rotary_dim)``: (rotary_dim / 2,)."""
    return theta ** (-np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim)


def llama3_frequencies(
    frequencies: NDArray[np.float64], *, factor: float, low: float, high: float, original_max_position: int
) -> NDArray[np.float64]:
    """Llama 3.1's scaling: waves longer than the original context over `low` are slowed by `factor`, those shorter than
    it over `high` stay, those between are blended."""
    turns = original_max_position * frequencies / (2 * math.pi)  # of each pair over the original context
    blend = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1 - blend) * frequencies / factor + blend * frequencies


def make_rope(frequencies: NDArray[np.float64]) -> RopeSpec:
    """A spec with the frequencies rounded to float32. Raises ModelFileError if one is too large for that."""
    if not (frequencies <= np.finfo(np.float32).max).all():
        raise ModelFileError("the RoPE frequencies are not finite; the scaling factors of the model are damaged")
    return RopeSpec(inv_freq=tuple(float(f) for f in frequencies.astype(np.float32)))


@np.errstate(over="ignore", invalid="ignore")  # `make_rope` tells
def read_hf_rope(keys: Keys, rotary_dim: int) -> RopeSpec:
    """Read ``rope_theta`` and ``rope_scaling``, or ``rope_parameters`` as transformers 5 writes it.

    Raises:
        UnsupportedModelError: for scalings other than `HF_ROPE_TYPES`, by name.
    """
    if keys.has("rope_scaling") and keys.has("rope_parameters"):
        raise ModelFileError(f"{keys.source}: both 'rope_scaling' and 'rope_parameters' are given; keep one")
    outer_theta = keys.number_or("rope_theta", DEFAULT_THETA)
    name = next((key for key in ("rope_scaling", "rope_parameters") if keys.has(key)), None)
    if name is None:
        return make_rope(plain_frequencies(outer_theta, rotary_dim))
    section = keys.section(name)
    kind = _hf_rope_type(section)
    frequencies = plain_frequencies(section.number_or("rope_theta", outer_theta), rotary_dim)
    if kind == "linear":
        frequencies = frequencies / section.number("factor")
    elif kind == "llama3":
        low, high = section.number("low_freq_factor"), section.number("high_freq_factor")
        if high <= low:
            raise ModelFileError(f"{section.source}: 'high_freq_factor' = {high} must exceed 'low_freq_factor' = {low}")
        frequencies = llama3_frequencies(
            frequencies,
            factor=section.number("factor"),
            low=low,
            high=high,
            original_max_position=section.size("original_max_position_embeddings"),
        )
    section.require("partial_rotary_factor", 1.0, why="the whole head is rotated")
    section.finish()
    return make_rope(frequencies)


def _hf_rope_type(section: Keys) -> str:
    """The scaling's name, spelled ``rope_type`` or, in older files, ``type``."""
    names = {section.text(key) for key in ("rope_type", "type") if section.has(key)}
    if len(names) > 1:
        raise ModelFileError(f"{section.source}: 'rope_type' and 'type' disagree: {shown(sorted(names))}")
    if not names:
        raise ModelFileError(
            f"{section.source}: the key 'rope_type' is missing (supported: {', '.join(HF_ROPE_TYPES)})"
        )
    kind = names.pop()
    if kind not in HF_ROPE_TYPES:
        raise UnsupportedModelError(
            f"{section.source}: RoPE type {shown(kind)} is not supported (supported: {', '.join(HF_ROPE_TYPES)})"
        )
    return kind


@np.errstate(over="ignore", invalid="ignore")  # `make_rope` tells
def read_gguf_rope(keys: Keys, head_dim: int, factors: NDArray[np.float32] | None) -> RopeSpec:
    """Read ``rope.*`` of GGUF metadata.

    Args:
        factors: divisors of each pair's frequency, from the tensor ``rope_freqs.weight`` if the file has it (llama3
            scaling is stored so).

    Raises:
        UnsupportedModelError: for scalings other than `GGUF_ROPE_TYPES`, by name.
    """
    if keys.size_or("rope.dimension_count", head_dim) != head_dim:
        keys.require("rope.dimension_count", head_dim, why=f"the whole head of {head_dim} elements is rotated")
    frequencies = plain_frequencies(keys.number_or("rope.freq_base", DEFAULT_THETA), head_dim)
    kind = keys.text("rope.scaling.type") if keys.has("rope.scaling.type") else None
    if kind is not None and kind not in GGUF_ROPE_TYPES:
        raise UnsupportedModelError(
            f"{keys.source}: RoPE scaling {shown(kind)} is not supported (supported: {', '.join(GGUF_ROPE_TYPES)})"
        )
    # before `rope.scaling.*` there was `rope.scale_linear`
    factor = keys.number_or("rope.scale_linear", 1.0)
    if keys.has("rope.scaling.factor"):
        factor = keys.number("rope.scaling.factor")
        if kind is None:
            raise ModelFileError(f"{keys.source}: 'rope.scaling.factor' is given without 'rope.scaling.type'")
    elif kind == "linear":
        raise ModelFileError(f"{keys.source}: the key 'rope.scaling.factor' is missing")
    if kind != "none":
        frequencies = frequencies / factor
    # they describe how the scaling came about and enter no formula of the supported types
    keys.ignore(("rope.scaling.original_context_length", "rope.scaling.finetuned"))
    if factors is not None:
        if factors.shape != frequencies.shape or not (np.isfinite(factors) & (factors > 0)).all():
            raise ModelFileError(
                f"tensor 'rope_freqs.weight' of shape {factors.shape} must hold {frequencies.size} positive factors"
            )
        frequencies = frequencies / factors
    return make_rope(frequencies)
