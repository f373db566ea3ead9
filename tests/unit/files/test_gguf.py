"""GGUF files: what is written is read, and both as the `gguf` package has it."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forge import Gguf, Info, array, good_gguf, pair, text
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from freehold.errors import UnsupportedModelError
from freehold.files.gguf import GGUFFile, read_gguf
from freehold.files.gguf_write import write_gguf
from freehold.files.mapped import MappedFile
from freehold.files.model import open_model
from freehold.files.quants import quantize
from freehold.files.tensor_source import TensorSource
from freehold.files.tensors import DType


def read(path: Path) -> GGUFFile:
    return read_gguf(MappedFile(path))


def read_bytes(directory: Path, raw: bytes) -> GGUFFile:
    path = directory / "model.gguf"
    path.write_bytes(raw)
    return read(path)


def random_tensor(name: str, dtype: DType, shape: tuple[int, ...], seed: int = 0) -> TensorSource:
    num_bytes = TensorSource(name, dtype, shape, lambda: iter(())).num_bytes
    data = np.random.default_rng(seed).integers(0, 256, num_bytes, dtype=np.uint8)
    return TensorSource.of(name, dtype, shape, data)


def data_of(source: TensorSource) -> NDArray[np.uint8]:
    return np.concatenate([piece.reshape(-1) for piece in source.pieces()])


ONE_OF_EACH = {
    0: ("<B", 200),
    1: ("<b", -100),
    2: ("<H", 60000),
    3: ("<h", -30000),
    4: ("<I", 4_000_000_000),
    5: ("<i", -2_000_000_000),
    6: ("<f", 0.5),
    10: ("<Q", 2**64 - 1),
    11: ("<q", -(2**63)),
    12: ("<d", 1e300),
}


@pytest.mark.parametrize("version", [2, 3])
def test_each_value_type_is_read(tmp_path: Path, version: int) -> None:
    pairs = [
        pair(f"scalar.{number}", number, struct.pack(code, value)) for number, (code, value) in ONE_OF_EACH.items()
    ]
    pairs += [
        pair(f"array.{number}", 9, array(number, 3, struct.pack(code, value) * 3))
        for number, (code, value) in ONE_OF_EACH.items()
    ]
    pairs += [
        pair("yes", 7, b"\1"),
        pair("no", 7, b"\0"),
        pair("word", 8, text("Grüße 漢字 😀")),
        pair("nothing", 8, text("")),
        pair("flags", 9, array(7, 3, b"\1\0\1")),
        pair("words", 9, array(8, 3, text("a") + text("") + text("é"))),
        pair("empty", 9, array(6, 0)),
        pair("no words", 9, array(8, 0)),
        pair("nested", 9, array(9, 3, array(9, 1, array(8, 1, text("x"))) + array(0, 2, b"\1\2") + array(9, 0))),
    ]
    metadata = read_bytes(tmp_path, Gguf(pairs=pairs, version=version).encode()).metadata
    for number, (_, value) in ONE_OF_EACH.items():
        assert metadata[f"scalar.{number}"] == value
        assert metadata[f"array.{number}"].tolist() == [value] * 3
        assert metadata[f"array.{number}"].ndim == 1
        assert not metadata[f"array.{number}"].flags.writeable
    assert metadata["yes"] is True
    assert metadata["no"] is False
    assert metadata["word"] == "Grüße 漢字 😀"
    assert metadata["nothing"] == ""
    assert metadata["flags"].dtype == np.bool_
    assert metadata["flags"].tolist() == [True, False, True]
    assert metadata["words"] == ["a", "", "é"]
    assert metadata["empty"].dtype == np.float32
    assert metadata["empty"].size == 0
    assert metadata["no words"] == []
    [[[word]], numbers, nothing] = metadata["nested"]
    assert word == "x"
    assert numbers.tolist() == [1, 2]
    assert nothing == []


def test_tensors_are_views_of_the_file_in_numpy_order(tmp_path: Path) -> None:
    file = read_bytes(tmp_path, good_gguf().encode())
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in file.tensors.items()} == {
        "norm": ((8,), DType.F32),
        "matrix": ((2, 32), DType.Q8_0),
        "half": ((3, 4), DType.F16),
    }
    norm = file.tensors["norm"]
    assert norm.data.tobytes() == bytes(range(32))
    assert norm.data.base is not None
    assert not norm.data.flags.writeable
    assert file.tensors["matrix"].row_bytes == 34


def test_the_last_tensor_needs_no_padding(tmp_path: Path) -> None:
    raw = Gguf(infos=[Info("a", (3,))], data=bytes(12)).encode()
    assert read_bytes(tmp_path, raw).tensors["a"].data.size == 12


@pytest.mark.parametrize("padded", [True, False])
def test_a_file_without_tensors_is_read(tmp_path: Path, padded: bool) -> None:
    file = read_bytes(tmp_path, Gguf(pairs=[pair("k", 8, text("v"))], padded=padded).encode())
    assert (file.metadata, file.tensors) == ({"k": "v"}, {})


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_alignment_is_obeyed(tmp_path: Path, alignment: int) -> None:
    sources = [random_tensor(f"t{size}", DType.F16, (size,), size) for size in (1, 5, 33, 2048)]
    path = tmp_path / "model.gguf"
    write_gguf(path, {"general.alignment": alignment}, sources)
    file = read(path)
    assert file.alignment == alignment
    for source, theirs in zip(sources, GGUFReader(path).tensors, strict=True):
        assert np.array_equal(file.tensors[source.name].data, data_of(source))
        assert np.array_equal(theirs.data.view(np.uint8), data_of(source))
        assert theirs.data_offset % alignment == 0


def test_tensors_may_lie_in_another_order_than_the_list(tmp_path: Path) -> None:
    raw = Gguf(infos=[Info("late", (8,), 0, 32), Info("early", (8,), 0, 0)], data=bytes(32) + bytes(range(32))).encode()
    file = read_bytes(tmp_path, raw)
    assert list(file.tensors) == ["late", "early"]
    assert file.tensors["late"].data.tobytes() == bytes(range(32))


def test_a_foreign_type_is_refused_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    infos = [Info("codes", (256,), 16, 0), Info("fine", (8,), 0, 96)]
    path.write_bytes(Gguf(infos=infos, data=bytes(128)).encode())
    with open_model(path) as model:
        assert list(model.tensors) == ["codes", "fine"]
        assert model.tensors["fine"].shape == (8,)
        with pytest.raises(UnsupportedModelError, match=r"model\.gguf: tensor 'codes' has type IQ2_XXS"):
            _ = model.tensors["codes"]


@pytest.mark.parametrize("dtype", list(DType), ids=lambda dtype: dtype.name)
def test_each_tensor_type_written_here_is_what_the_oracle_reads(tmp_path: Path, dtype: DType) -> None:
    source = random_tensor("blk.0.weight", dtype, (3, 2, 2 * dtype.block_elements))
    path = tmp_path / "model.gguf"
    write_gguf(path, {"general.architecture": "llama"}, [source])
    (theirs,) = GGUFReader(path).tensors
    assert theirs.tensor_type == GGMLQuantizationType[dtype.name]
    assert theirs.shape.tolist() == [2 * dtype.block_elements, 2, 3]
    assert np.array_equal(theirs.data.view(np.uint8).reshape(-1), data_of(source))
    ours = read(path).tensors["blk.0.weight"]
    assert (ours.dtype, ours.shape) == (dtype, source.shape)
    assert np.array_equal(ours.data, data_of(source))


def test_metadata_written_here_is_what_the_oracle_reads(tmp_path: Path) -> None:
    written: dict[str, Any] = {
        "general.architecture": "llama",
        "flag": True,
        "count": 7,
        "negative": -7,
        "large": 2**40,
        "ratio": 0.25,
        "short": np.uint16(3),
        "precise": np.float64(0.1),
        "ids": np.arange(5, dtype=np.int32),
        "flags": np.array([True, False]),
        "words": ["a", "é", ""],
    }
    path = tmp_path / "model.gguf"
    write_gguf(path, written, [])
    fields = GGUFReader(path).fields
    kinds = {key: [kind.name for kind in fields[key].types] for key in written}
    assert kinds["count"] == ["UINT32"]
    assert kinds["negative"] == kinds["large"] == ["INT64"]
    assert kinds["ratio"] == ["FLOAT32"]
    assert kinds["short"] == ["UINT16"]
    assert kinds["precise"] == ["FLOAT64"]
    assert kinds["ids"] == ["ARRAY", "INT32"]
    for key, value in written.items():
        expected = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
        assert fields[key].contents() == expected, key


def test_a_file_of_the_oracle_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 3)
    writer.add_key_value("precise", 0.1, GGUFValueType.FLOAT64)
    writer.add_array("tokens", ["<s>", "Ġa", "é"])
    writer.add_array("scores", [0.5, -1.5])
    writer.add_bool("flag", True)
    writer.add_custom_alignment(64)
    values = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    writer.add_tensor("a.weight", values)
    writer.add_tensor("b.weight", quantize(values, DType.Q8_0), raw_dtype=GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = read(path)
    assert file.alignment == 64
    assert file.metadata["llama.block_count"] == 3
    assert file.metadata["precise"] == 0.1
    assert file.metadata["tokens"] == ["<s>", "Ġa", "é"]
    assert file.metadata["scores"].tolist() == [0.5, -1.5]
    assert file.metadata["flag"] is True
    assert np.array_equal(file.tensors["a.weight"].data.view("<f4").reshape(4, 64), values)
    assert (file.tensors["b.weight"].dtype, file.tensors["b.weight"].shape) == (DType.Q8_0, (4, 64))


VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(width=32, allow_nan=False),
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=5),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=9).map(lambda items: np.array(items, np.int32)),
    st.lists(st.floats(width=32, allow_nan=False), max_size=9).map(lambda items: np.array(items, np.float32)),
    st.lists(st.lists(st.text("ab", max_size=3), min_size=1, max_size=3), max_size=3),
)


@given(st.dictionaries(st.text("abc._é", min_size=1, max_size=9), VALUES, max_size=6))
def test_metadata_written_is_metadata_read(tmp_path_factory: pytest.TempPathFactory, metadata: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    write_gguf(path, metadata, [])
    found = read(path).metadata
    assert list(found) == list(metadata)
    for key, value in metadata.items():
        assert np.array_equal(found[key], value) if isinstance(value, np.ndarray) else found[key] == value


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"k": object()}, "k is a object"),
        ({"k": ["a", 1]}, "mixes"),
        ({"k": np.zeros((2, 2), np.int32)}, "dimensions"),
        ({"k": np.complex64(1)}, "complex64"),
        ({"k": None}, "NoneType"),
    ],
)
def test_the_writer_refuses_what_the_format_cannot_hold(tmp_path: Path, metadata: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        write_gguf(tmp_path / "model.gguf", metadata, [])


@pytest.mark.parametrize("count", [63, 65])
def test_the_writer_notices_a_source_of_another_size(tmp_path: Path, count: int) -> None:
    source = TensorSource.of("t", DType.F32, (16,), np.zeros(count, np.uint8))
    with pytest.raises(ValueError, match=f"t yields {count} bytes instead of 64"):
        write_gguf(tmp_path / "model.gguf", {}, [source])


def test_the_default_model_is_read_as_the_oracle_reads_it(smollm2_path: Path) -> None:
    file = read(smollm2_path)
    reader = GGUFReader(smollm2_path)
    theirs = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    ours = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in file.metadata.items()}
    assert ours == theirs
    assert list(file.tensors) == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        found = file.tensors[tensor.name]
        assert found.dtype.name == tensor.tensor_type.name
        assert list(found.shape) == tensor.shape.tolist()[::-1]
        assert np.array_equal(found.data, tensor.data.view(np.uint8).reshape(-1))
