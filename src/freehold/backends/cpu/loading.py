"""From a model's tensors to packed native weights."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from freehold import _native
from freehold.arch.load import Weights
from freehold.arch.spec import ModelSpec, RopeSpec, Slot
from freehold.backends.base import BackendOptions
from freehold.errors import ConfigError
from freehold.files.mapped import MappedFile
from freehold.files.packed_cache import PackedCache
from freehold.files.packed_file import Contents, PackedMatrix
from freehold.files.quants import dequantize
from freehold.files.tensors import MappedTensor

VECTOR_SLOTS = frozenset(
    {
        Slot.FINAL_NORM,
        Slot.ATTN_NORM,
        Slot.MLP_NORM,
        Slot.Q_BIAS,
        Slot.K_BIAS,
        Slot.V_BIAS,
        Slot.Q_NORM,
        Slot.K_NORM,
    }
)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A native device, and what it holds.

    Attributes:
        layouts: names of the packed layouts in use.
        weight_bytes: bytes of the packed weights.
    """

    device: _native.Device
    layouts: tuple[str, ...]
    weight_bytes: int


def choose_isa(highest: str | None) -> str:
    """The instruction set to use: the one asked for, or the best that this processor has.

    Raises:
        ConfigError: it is unknown or the processor lacks it.
    """
    available = _native.available_isas()
    if highest is None:
        return available[0]
    if highest not in available:
        raise ConfigError(f"isa '{highest}' isn't available on this processor (available: {', '.join(available)})")
    return highest


def load_model(spec: ModelSpec, weights: Weights, options: BackendOptions) -> LoadedModel:
    """Pack all weights with `options.num_threads` threads and open a device.

    Raises:
        ConfigError: an instruction set that this processor lacks.
    """
    isa = choose_isa(options.isa)
    matrices = list(_matrix_shapes(spec))
    integer_scales = options.activations == "int8" and _native.has_integer_scales(isa)
    weight_bytes = sum(
        _native.packed_bytes(slot.value, weights.dtype(slot, layer).name, *shape, integer_scales, spec.tied_embeddings)
        for slot, layer, shape in matrices
    )
    builder = _native.Builder.make(
        spec.vocab_size,
        spec.hidden_size,
        spec.norm_eps,
        spec.tied_embeddings,
        weight_bytes,
        options.num_threads,
        integer_scales,
    )
    _describe_layers(builder, spec)
    _fill(builder, weights, matrices, options.packed, _native.packing_description(integer_scales))
    for slot, layer in weights:
        if slot in VECTOR_SLOTS:
            vector = np.ascontiguousarray(dequantize(weights.get(slot, layer)), dtype=np.float32)
            builder.set_vector(slot.value, layer, vector)
    layouts = tuple(builder.layouts())
    device = builder.open(
        isa=isa,
        num_blocks=options.num_blocks,
        block_size=options.block_size,
        max_rows=options.max_rows,
        max_tokens=options.max_tokens,
        num_threads=options.num_threads,
        kv_dtype=options.kv_dtype,
        int8=options.activations == "int8",
    )
    return LoadedModel(device, layouts, weight_bytes)


_Matrix = tuple[Slot, int | None, tuple[int, int]]
"""Slot, layer, and (outputs, inputs)."""


def _fill(
    builder: _native.Builder,
    weights: Weights,
    matrices: list[_Matrix],
    packed: PackedCache | None,
    description: str,
) -> None:
    """Have all matrices in memory: read as they were packed once, or packed, those in files straight from there.

    `description` says how the builder packs.

    Raises:
        ModelFileError: a file was truncated meanwhile, or can't be read.
    """
    files: dict[int, MappedFile] = {}
    origins = []
    for index, (slot, layer, shape) in enumerate(matrices):
        tensor, row_order = weights.stored(slot, layer)
        order = np.empty(0, np.int32) if row_order is None else row_order
        if isinstance(tensor, MappedTensor):
            place = (tensor.file.descriptor, tensor.start, tensor.data.size)
            builder.add_file_matrix(slot.value, layer, tensor.dtype.name, *shape, place, order)
            files[index] = tensor.file
        else:
            data = np.ascontiguousarray(tensor.data).reshape(-1)
            builder.add_matrix(slot.value, layer, tensor.dtype.name, *shape, data, order)
        origins.append(
            PackedMatrix(slot.value, layer, tensor.name, tensor.dtype.name, shape, zlib.crc32(order.tobytes()))
        )
    data = builder.packed_weights()
    contents = Contents(description, tuple(origins), data.size)
    if packed is not None and packed.load(contents, builder.read):
        return
    if (failure := builder.pack()) is not None:
        index, error_number = failure
        raise files[index].read_error(error_number)
    if packed is not None:
        packed.offer(contents, data, _native.chunk_checksums, builder.packing_s)


def _matrix_shapes(spec: ModelSpec) -> Iterator[_Matrix]:
    """Every matrix in the order in which a step reads them, which becomes their order in memory."""
    hidden = spec.hidden_size
    if not spec.tied_embeddings:
        yield Slot.EMBED, None, (spec.vocab_size, hidden)
    for index, layer in enumerate(spec.layers):
        attention, mlp_size = layer.attention, layer.mlp.intermediate_size
        queries, keys = (heads * attention.head_dim for heads in (attention.num_heads, attention.num_kv_heads))
        yield Slot.Q, index, (queries, hidden)
        yield Slot.K, index, (keys, hidden)
        yield Slot.V, index, (keys, hidden)
        yield Slot.O, index, (hidden, queries)
        yield Slot.GATE, index, (mlp_size, hidden)
        yield Slot.UP, index, (mlp_size, hidden)
        yield Slot.DOWN, index, (hidden, mlp_size)
    yield Slot.EMBED if spec.tied_embeddings else Slot.HEAD, None, (spec.vocab_size, hidden)


def _describe_layers(builder: _native.Builder, spec: ModelSpec) -> None:
    ropes: dict[RopeSpec, int] = {}
    for layer in spec.layers:
        attention = layer.attention
        if attention.rope not in ropes:
            frequencies = np.array(attention.rope.inv_freq, dtype=np.float32)
            ropes[attention.rope] = builder.add_rope(frequencies, attention.rope.attention_factor)
        builder.add_layer(
            num_heads=attention.num_heads,
            num_kv_heads=attention.num_kv_heads,
            head_dim=attention.head_dim,
            scale=attention.scale,
            window=attention.window,
            rope=ropes[attention.rope],
            qk_norm=attention.qk_norm,
            qkv_bias=attention.qkv_bias,
            mlp_size=layer.mlp.intermediate_size,
        )
