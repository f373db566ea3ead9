"""Packed weights from a file: the same bits as packed anew, whatever happens to the file."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from models import make_spec, make_weights
from sources import random_tensor

from freehold import _native
from freehold.arch.spec import Slot
from freehold.backends import open_backend
from freehold.backends.base import BackendOptions, Row, RowSampling, Step, StepId
from freehold.files.packed_cache import PackedCache, list_packed
from freehold.files.packed_file import open_packed
from freehold.files.tensors import DType

SPEC = make_spec(hidden=256, heads=4, kv_heads=4, head_dim=64, mlp=512, vocab=3000, tied=False)
OTHERS = {Slot.V: DType.Q6_K, Slot.O: DType.Q2_K, Slot.UP: DType.IQ4_XS, Slot.HEAD: DType.BF16}
SEEDED = RowSampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=5, choice=0)
CHUNK_BYTES = 256 << 10


def run(folder: Path | None, num_threads: int = 2) -> tuple[list[int], list[int], bytes]:
    """Ids, digests and logits with the weights of SPEC; what was packed is kept."""
    packed = None if folder is None else PackedCache(folder, Path("m"), ("ab" * 32,), 1 << 30, always=True)
    options = BackendOptions(
        num_blocks=4, block_size=16, max_rows=1, max_tokens=16, num_threads=num_threads, packed=packed
    )
    backend = open_backend("cpu", SPEC, make_weights(SPEC, DType.Q4_K, OTHERS), options)
    try:
        if packed is not None:
            packed.keep(("ab" * 32,))
            packed.wait()
        row = Row(0, [5, 2999, 64, 7], np.arange(1, dtype=np.int32), 1, SEEDED, want_digests=True, want_logits=True)
        backend.submit(Step(StepId(0), [row]))
        (result,) = backend.collect(StepId(0)).rows
    finally:
        backend.close()
    return list(result.token_ids), list(result.digests), result.logits.tobytes()


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_what_was_kept_gives_the_same_bits(tmp_path: Path, caplog, num_threads: int) -> None:
    caplog.set_level("INFO")
    expected = run(None)
    assert run(tmp_path) == expected
    assert "packed weights from" not in caplog.text
    assert run(tmp_path, num_threads) == expected
    assert "packed weights from" in caplog.text


@pytest.mark.parametrize("place", ["first byte", "last of a chunk", "first of a chunk", "middle", "last byte"])
def test_a_changed_bit_is_packed_anew(tmp_path: Path, caplog, place: str) -> None:
    expected = run(tmp_path)
    (stored,) = list_packed(tmp_path)
    file = open_packed(stored.path)
    file.close()
    data = bytearray(stored.path.read_bytes())
    assert len(data) - file.start > 3 * CHUNK_BYTES
    positions = {
        "first byte": file.start,
        "last of a chunk": file.start + CHUNK_BYTES - 1,
        "first of a chunk": file.start + CHUNK_BYTES,
        "middle": (file.start + len(data)) // 2,
        "last byte": len(data) - 1,
    }
    data[positions[place]] ^= 1
    stored.path.write_bytes(data)
    assert run(tmp_path) == expected
    assert "is damaged" in caplog.text
    caplog.clear()
    assert run(tmp_path) == expected
    assert not caplog.records


def test_the_native_reader_says_what_is_wrong(tmp_path: Path) -> None:
    tensor = random_tensor(DType.F32, 3000, 64)
    builder = _native.Builder.make(3000, 64, 1e-5, True, _native.packed_bytes("embed", "F32", 3000, 64), 2)
    builder.add_matrix("embed", None, "F32", 3000, 64, tensor.data, np.empty(0, np.int32))
    assert builder.pack() is None
    packed = builder.packed_weights().copy()
    sums = _native.chunk_checksums(packed)
    path = tmp_path / "packed"
    path.write_bytes(b"head" + packed.tobytes())
    with path.open("rb") as file:
        assert builder.read(file.fileno(), 4, sums) is None
        assert "chunk" in builder.read(file.fileno(), 3, sums)
        assert "another number" in builder.read(file.fileno(), 4, sums[:-1])
        os.truncate(path, path.stat().st_size - 1)
        assert "truncated" in builder.read(file.fileno(), 4, sums)
    folder = os.open(tmp_path, os.O_RDONLY)
    assert "can't be read" in builder.read(folder, 0, sums)
    os.close(folder)
    assert builder.pack() is None
    np.testing.assert_array_equal(builder.packed_weights(), packed)


def test_checksums_tell_every_bit_and_the_order() -> None:
    data = np.random.default_rng(1).integers(0, 256, 200, np.uint8)
    seen = {_native.chunk_checksums(data)[0]}
    for bit in range(data.size * 8):
        changed = data.copy()
        changed[bit // 8] ^= 1 << bit % 8
        seen.add(_native.chunk_checksums(changed)[0])
    for step in (8, 64):  # a lane's neighbour, the lane's next word
        swapped = data.copy()
        swapped[:8], swapped[step : step + 8] = data[step : step + 8], data[:8]
        seen.add(_native.chunk_checksums(swapped)[0])
    for size in range(200):
        seen.add(_native.chunk_checksums(np.zeros(size + 1, np.uint8))[0])
    assert len(seen) == 1 + 1600 + 2 + 200


def test_two_changes_in_one_lane_do_not_cancel() -> None:
    """Top bits, which multiplication alone would never move."""
    data = np.zeros(64 * 40, np.uint8)
    seen = set()
    for first in range(40):
        for second in range(first):
            changed = data.copy()
            changed[64 * first + 7] ^= 0x80
            changed[64 * second + 7] ^= 0x80
            seen.add(_native.chunk_checksums(changed)[0])
    assert len(seen) == 40 * 39 // 2


PINNED = ("454dbca8bda47a2b", "902172ba41ee1143")


def test_other_bytes_have_another_description() -> None:
    """Kept weights are found by the description of packing. Bytes that change under the same description would be taken
    for the old ones: raise kPackingVersion in csrc/packed_file.cpp then. After that, or if the tables of layouts
    changed, pin what this finds."""
    packed = hashlib.sha256()
    for dtype in DType:
        for integer_scales in (False, True):
            data = random_tensor(dtype, 70, 512).data
            packed.update(_native.kernels.packed(dtype.name, 70, 512, data, False, integer_scales))
    description = hashlib.sha256(_native.packing_description().encode())
    assert _native.packing_description(True) != _native.packing_description()
    assert (description.hexdigest()[:16], packed.hexdigest()[:16]) == PINNED
