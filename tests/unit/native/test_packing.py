"""Packing: the fast ways give the bytes of the slow twin; files give what memory gives; lost bytes are errors."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from models import make_spec, shapes
from sources import input_sizes, random_tensor

from freehold import _native
from freehold.arch.load import Weights
from freehold.arch.rules import TensorRule, pairs_to_halves
from freehold.arch.spec import ModelSpec, Slot
from freehold.backends import open_backend
from freehold.backends.base import BackendOptions, Row, Step, StepId
from freehold.errors import ModelFileError
from freehold.files.mapped import MappedFile
from freehold.files.tensors import DType, MappedTensor, Tensor

SPEC = make_spec(hidden=512, heads=4, kv_heads=2, head_dim=64, mlp=512, vocab=1100, tied=False)


@pytest.mark.parametrize("dtype", DType)
def test_fast_packing_gives_the_slow_twins_bytes(dtype: DType) -> None:
    for num_outputs in (1, 31, 32, 33, 100):
        for num_inputs in input_sizes(dtype):
            tensor = random_tensor(dtype, num_outputs, num_inputs, seed=3)
            fast, slow = (
                _native.kernels.packed(dtype.name, num_outputs, num_inputs, tensor.data, by_groups)
                for by_groups in (False, True)
            )
            assert fast == slow, (num_outputs, num_inputs)


def make_rules(spec: ModelSpec) -> list[TensorRule]:
    """Every tensor of a spec; queries and keys are stored in pairs."""
    orders = {Slot.Q: pairs_to_halves(4), Slot.K: pairs_to_halves(2)}
    return [
        TensorRule(slot, layer, f"{slot}.{layer}", shape, orders.get(slot))
        for (slot, layer), shape in shapes(spec).items()
    ]


def make_tensors(spec: ModelSpec, dtype: DType) -> dict[str, Tensor]:
    tensors = {}
    for seed, ((slot, layer), shape) in enumerate(shapes(spec).items()):
        made = random_tensor(dtype if len(shape) > 1 else DType.F32, *(shape if len(shape) > 1 else (1, *shape)), seed)
        tensors[f"{slot}.{layer}"] = Tensor(f"{slot}.{layer}", made.dtype, shape, made.data)
    return tensors


@pytest.fixture
def in_file(tmp_path: Path) -> Iterator["_InFile"]:
    writer = _InFile(tmp_path / "weights")
    yield writer
    writer.close()


class _InFile:
    """Puts tensors into one file, at odd places."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: MappedFile | None = None

    def put(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        starts, data = {}, b"odd"
        for tensor in tensors.values():
            starts[tensor.name] = len(data)
            data += tensor.data.tobytes()
        self.path.write_bytes(data)
        self.file = file = MappedFile(self.path)
        return {
            t.name: MappedTensor(t.name, t.dtype, t.shape, file.data[start : start + t.data.size], file, start)
            for t, start in zip(tensors.values(), starts.values(), strict=True)
        }

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def logits(weights: Weights, num_threads: int) -> np.ndarray:
    options = BackendOptions(num_blocks=4, block_size=16, max_rows=1, max_tokens=16, num_threads=num_threads)
    backend = open_backend("cpu", SPEC, weights, options)
    try:
        row = Row(0, [5, 1099, 64, 7], np.arange(1, dtype=np.int32), 0, want_logits=True)
        backend.submit(Step(StepId(0), [row]))
        (result,) = backend.collect(StepId(0)).rows
    finally:
        backend.close()
    assert result.logits is not None
    return result.logits


@pytest.mark.parametrize("dtype", [DType.Q4_0, DType.Q6_K, DType.BF16, DType.F32])
def test_a_file_gives_what_memory_gives(in_file, dtype: DType) -> None:
    """Whatever the threads: rows in another order than the file's, several runs of strips a matrix."""
    rules, tensors = make_rules(SPEC), make_tensors(SPEC, dtype)
    canonical = Weights(rules, tensors)
    plain = [TensorRule(rule.slot, rule.layer, rule.name, rule.shape) for rule in rules]
    in_order = Weights(plain, {rule.name: canonical.get(rule.slot, rule.layer) for rule in rules})
    expected = logits(in_order, 1)
    stored = in_file.put(tensors)
    for num_threads in (1, 2, 3):
        np.testing.assert_array_equal(logits(Weights(rules, stored), num_threads), expected)
        np.testing.assert_array_equal(logits(Weights(rules, tensors), num_threads), expected)
    unordered = logits(Weights(plain, stored), 1)
    assert not np.array_equal(unordered, expected)


def test_a_file_that_shrank_is_an_error(in_file) -> None:
    stored = in_file.put(make_tensors(SPEC, DType.Q8_0))
    os.truncate(in_file.path, in_file.file.size // 2)
    with pytest.raises(ModelFileError, match="truncated from"):
        logits(Weights(make_rules(SPEC), stored), 2)


def test_a_file_that_cannot_be_read_is_an_error(in_file, tmp_path: Path) -> None:
    stored = in_file.put(make_tensors(SPEC, DType.Q8_0))
    descriptor = os.open(tmp_path, os.O_RDONLY)  # a folder's
    os.dup2(descriptor, in_file.file.descriptor)
    os.close(descriptor)
    with pytest.raises(ModelFileError, match="can't be read"):
        logits(Weights(make_rules(SPEC), stored), 2)


@pytest.mark.parametrize("order", [[0, 1, 2], [0, 1, 2, 4], [0, 1, -1, 2]])
def test_malformed_row_orders_are_refused(order: list[int]) -> None:
    builder = _native.Builder.make(4, 32, 1e-5, True, 1 << 20, 1)
    data = random_tensor(DType.F32, 4, 32).data
    with pytest.raises(ValueError, match="row order"):
        builder.add_matrix("embed", None, "F32", 4, 32, data, np.array(order, np.int32))
