"""From model files to a spec and its weights, strictly: every key and every tensor has a meaning or stops the load."""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from freehold.arch import llama, qwen2, qwen3
from freehold.arch.dense import GGUF_GLOBAL_NAMES, HF_GLOBAL_NAMES
from freehold.arch.keys import Keys
from freehold.arch.rules import GgufFacts, Reading, TensorRule
from freehold.arch.spec import ModelSpec, Slot
from freehold.errors import ModelFileError, UnsupportedModelError, shown
from freehold.files.tensors import DType, Tensor

Reader = TypeVar("Reader")
logger = logging.getLogger(__name__)

HF_READERS: Mapping[str, Callable[[Keys], Reading]] = {
    "llama": llama.read_hf_llama,
    "mistral": llama.read_hf_mistral,
    "qwen2": qwen2.read_hf_qwen2,
    "qwen3": qwen3.read_hf_qwen3,
}
"""By ``model_type`` of config.json."""

GGUF_READERS: Mapping[str, Callable[[Keys, GgufFacts], Reading]] = {
    "llama": llama.read_gguf_llama,
    "qwen2": qwen2.read_gguf_qwen2,
    "qwen3": qwen3.read_gguf_qwen3,
}
"""By ``general.architecture`` of the metadata."""

GGUF_ROPE_FACTORS = "rope_freqs.weight"
COMPUTED_TENSORS = re.compile(r"(model\.)?(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")
"""Tensors that older checkpoints store although the configuration determines them."""


class ModelFilesLike(Protocol):
    """The part of `freehold.files.model.ModelFiles` that is read here."""

    @property
    def format(self) -> Literal["gguf", "hf"]: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...
    @property
    def tensors(self) -> Mapping[str, Tensor]: ...


class Weights:
    """A model's tensors by slot, in canonical order. Nothing is read or copied before `get`."""

    def __init__(self, rules: list[TensorRule], tensors: Mapping[str, Tensor]) -> None:
        """Raises ModelFileError for a tensor that is missing or has another shape than its rule."""
        self._rules = {(rule.slot, rule.layer): rule for rule in rules}
        self._tensors = tensors
        missing = [rule.name for rule in rules if rule.name not in tensors]
        if missing:
            raise ModelFileError(f"{_listed('tensor', missing)} missing; the file is incomplete")
        for rule in rules:
            shape = tensors[rule.name].shape
            if shape != rule.shape:
                raise ModelFileError(f"tensor '{rule.name}' has shape {shape}, the configuration asks for {rule.shape}")

    def __iter__(self) -> Iterator[tuple[Slot, int | None]]:
        """Every slot and layer that has a tensor."""
        return iter(self._rules)

    def get(self, slot: Slot, layer: int | None = None) -> Tensor:
        """The tensor of a slot, with canonical row order. Raises KeyError for a slot that the spec doesn't have."""
        tensor, order = self.stored(slot, layer)
        tensor = tensor.in_memory()
        if order is None:
            return tensor
        data = tensor.data.reshape(tensor.shape[0], tensor.row_bytes)[order].reshape(-1)
        data.flags.writeable = False
        return Tensor(tensor.name, tensor.dtype, tensor.shape, data)

    def stored(self, slot: Slot, layer: int | None = None) -> tuple[Tensor, NDArray[np.int32] | None]:
        """The tensor of a slot as its file stores it, unread, and the stored row of each canonical one where they
        differ. Raises KeyError for a slot that the spec doesn't have."""
        rule = self._rules[slot, layer]
        return self._tensors[rule.name], rule.row_order(rule.shape[0]) if rule.row_order else None

    def dtype(self, slot: Slot, layer: int | None = None) -> DType:
        """The storage type of a slot's tensor, without reading it."""
        return self._tensors[self._rules[slot, layer].name].dtype


def read_model(files: ModelFilesLike) -> tuple[ModelSpec, Weights]:
    """Understand a model.

    Raises:
        UnsupportedModelError: an architecture, RoPE type or option that isn't implemented, by name and value.
        ModelFileError: missing or contradictory keys; missing, leftover or misshapen tensors, by name.
    """
    spec, rules = _read_hf(files) if files.format == "hf" else _read_gguf(files)
    weights = Weights(rules, files.tensors)
    _refuse_leftovers(spec, files, {rule.name for rule in rules})
    return spec, weights


def _read_hf(files: ModelFilesLike) -> Reading:
    keys = Keys(files.metadata, source="config.json")
    reader = _choose(HF_READERS, keys, "model_type")
    reading = reader(keys)
    keys.finish()
    return reading


def _read_gguf(files: ModelFilesLike) -> Reading:
    """GGUF puts all that affects computation under the architecture's own prefix; other keys describe the file, its
    making or its tokenizer."""
    general = Keys(files.metadata, source="GGUF metadata")
    general.require("general.type", "model", why="only whole models are run")
    reader = _choose(GGUF_READERS, general, "general.architecture")
    prefix = general.text("general.architecture") + "."
    own = {key.removeprefix(prefix): value for key, value in files.metadata.items() if key.startswith(prefix)}
    keys = Keys(own, source=f"GGUF metadata ({prefix}*)")
    embedding = files.tensors.get(GGUF_GLOBAL_NAMES[Slot.EMBED])
    if embedding is None:
        raise ModelFileError(f"tensor '{GGUF_GLOBAL_NAMES[Slot.EMBED]}' is missing; the file is incomplete")
    facts = GgufFacts(
        vocab_size=embedding.shape[0],
        tied_embeddings=GGUF_GLOBAL_NAMES[Slot.HEAD] not in files.tensors,
        rope_factors=_rope_factors(files),
    )
    reading = reader(keys, facts)
    keys.finish()
    return reading


def _choose(readers: Mapping[str, Reader], keys: Keys, key: str) -> Reader:
    architecture = keys.text(key)
    if architecture not in readers:
        raise UnsupportedModelError(
            f"{keys.source}: {key} {shown(architecture)} is not supported (supported: {', '.join(sorted(readers))})"
        )
    return readers[architecture]


def _rope_factors(files: ModelFilesLike) -> NDArray[np.float32] | None:
    tensor = files.tensors.get(GGUF_ROPE_FACTORS)
    if tensor is None:
        return None
    if tensor.dtype is not DType.F32:
        raise ModelFileError(f"tensor '{GGUF_ROPE_FACTORS}' is stored as {tensor.dtype.name}, expected F32")
    return tensor.in_memory().data.view("<f4").reshape(tensor.shape)


def _refuse_leftovers(spec: ModelSpec, files: ModelFilesLike, used: set[str]) -> None:
    left = sorted(set(files.tensors) - used)
    if files.format == "gguf":
        left = [name for name in left if name != GGUF_ROPE_FACTORS]
    else:
        left = [name for name in left if not COMPUTED_TENSORS.fullmatch(name)]
        head_name = HF_GLOBAL_NAMES[Slot.HEAD]
        if spec.tied_embeddings and head_name in left:
            left.remove(head_name)
            _warn_if_head_differs(files.tensors[head_name], files.tensors[HF_GLOBAL_NAMES[Slot.EMBED]])
    if left:
        raise ModelFileError(
            f"{_listed('tensor', left)} not part of a {spec.family} model with this configuration; "
            "running without them would give other results"
        )


def _warn_if_head_differs(head: Tensor, embedding: Tensor) -> None:
    """Fine-tuning tools save an output matrix although the configuration ties it to the embedding, which decides."""
    if head.dtype is not embedding.dtype or not np.array_equal(head.in_memory().data, embedding.in_memory().data):
        logger.warning(
            "'%s' differs from the embedding, but tie_word_embeddings is true: the embedding is used", head.name
        )


def _listed(noun: str, names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:5])
    if len(names) == 1:
        return f"{noun} {shown} is"
    return f"{noun}s {shown}{f' and {len(names) - 5} more' if len(names) > 5 else ''} are"
