"""Hugging Face checkpoints: single and sharded, against the `safetensors` package, and what can be wrong with them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from forge import entry, safetensors
from safetensors import safe_open
from safetensors.torch import save_file

from freehold.errors import ModelFileError, ModelNotFoundError, UnsupportedModelError
from freehold.files.model import ModelFiles, open_model
from freehold.files.quants import dequantize
from freehold.files.safetensors_write import write_checkpoint_tensors, write_safetensors
from freehold.files.tensor_source import TensorSource
from freehold.files.tensors import DType

INDEX = "model.safetensors.index.json"


def checkpoint(directory: Path, files: dict[str, dict[str, torch.Tensor]], weight_map: object = None) -> Path:
    """A directory with files of the oracle's, and an index if `weight_map` is given."""
    (directory / "config.json").write_text('{"model_type": "llama"}')
    for name, tensors in files.items():
        save_file(tensors, directory / name)
    if weight_map is not None:
        (directory / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return directory


def values(model: ModelFiles) -> dict[str, list[float]]:
    return {name: dequantize(tensor).reshape(-1).tolist() for name, tensor in model.tensors.items()}


def ones(value: float = 1.0) -> torch.Tensor:
    return torch.full((2,), float(value))


def test_a_file_of_the_oracle_is_read(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = {
        f"{kind}.{shape}": torch.randn(shape, generator=generator).to(kind)
        for kind in (torch.float32, torch.float16, torch.bfloat16)
        for shape in ((), (1,), (5,), (3, 4), (2, 0, 3), (2, 3, 4, 5))
    }
    with open_model(checkpoint(tmp_path, {"model.safetensors": tensors})) as model:
        assert model.format == "hf"
        assert model.metadata == {"model_type": "llama"}
        assert set(model.tensors) == set(tensors)
        for name, tensor in tensors.items():
            found = dequantize(model.tensors[name])
            assert found.shape == tuple(tensor.shape)
            assert np.array_equal(found, tensor.float().numpy())
            assert not model.tensors[name].data.flags.writeable


def test_files_written_here_are_what_the_oracle_reads(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sources = [
        TensorSource.of(
            f"t.{dtype.name}.{size}", dtype, (size, 3), rng.integers(0, 100, size * 3 * dtype.block_bytes, np.uint8)
        )
        for dtype in (DType.F32, DType.F16, DType.BF16)
        for size in (1, 2, 7)
    ]
    write_safetensors(tmp_path / "model.safetensors", sources)
    (tmp_path / "config.json").write_text("{}")
    with safe_open(tmp_path / "model.safetensors", "pt") as theirs, open_model(tmp_path) as ours:
        assert theirs.metadata() == {"format": "pt"}
        assert set(theirs.keys()) == {source.name for source in sources} == set(ours.tensors)
        for source in sources:
            raw = theirs.get_tensor(source.name).view(torch.uint8).numpy().reshape(-1)
            assert np.array_equal(raw, next(source.pieces()))
            assert np.array_equal(ours.tensors[source.name].data, raw)


def test_shards_are_cut_by_size_and_indexed(tmp_path: Path) -> None:
    sources = [TensorSource.of(f"t{n}", DType.F32, (n,), np.full(4 * n, n, np.uint8)) for n in (1, 9, 1, 1, 20, 1)]
    with pytest.raises(ValueError, match="occurs twice"):
        write_checkpoint_tensors(tmp_path, sources, 10**9)
    sources = [TensorSource.of(f"t{n}", DType.F32, (n,), np.full(4 * n, n, np.uint8)) for n in (1, 9, 2, 3, 20, 4)]
    write_checkpoint_tensors(tmp_path, sources, 48)
    index = json.loads((tmp_path / INDEX).read_text())
    names = [f"model-0000{n}-of-00004.safetensors" for n in range(1, 5)]
    assert index["metadata"]["total_size"] == 4 * 39
    assert index["weight_map"] == dict(
        zip(["t1", "t9", "t2", "t3", "t20", "t4"], [names[i] for i in (0, 0, 0, 1, 2, 3)], strict=True)
    )
    (tmp_path / "config.json").write_text("{}")
    with open_model(tmp_path) as model:
        assert {name: int(tensor.data[0]) for name, tensor in model.tensors.items()} == {
            f"t{n}": n for n in (1, 9, 2, 3, 20, 4)
        }


def test_the_index_decides_which_file_a_tensor_is_from(tmp_path: Path) -> None:  # st-02
    files = {
        "one.safetensors": {"x": ones(1), "y": ones(2), "extra": ones(9)},
        "two.safetensors": {"x": ones(3), "y": ones(4)},
        "stray-4bit.safetensors": {"x": ones(5), "z": ones(6)},
        "model.safetensors": {"x": ones(7)},
    }
    directory = checkpoint(tmp_path, files, {"x": "two.safetensors", "y": "one.safetensors"})
    with open_model(directory) as model:
        assert values(model) == {"x": [3, 3], "y": [2, 2]}


def test_only_indexed_files_are_read(tmp_path: Path) -> None:  # st-06
    directory = checkpoint(tmp_path, {"one.safetensors": {"x": ones()}}, {"x": "one.safetensors"})
    (directory / "stray.safetensors").write_bytes(b"rubbish")
    with open_model(directory) as model:
        assert values(model) == {"x": [1, 1]}


def test_a_missing_shard_is_named(tmp_path: Path) -> None:  # st-01
    weight_map = {"x": "one.safetensors", "y": "two.safetensors"}
    with pytest.raises(ModelFileError, match=r"two\.safetensors is missing"):
        open_model(checkpoint(tmp_path, {"one.safetensors": {"x": ones()}}, weight_map))


def test_a_truncated_shard_is_named(tmp_path: Path) -> None:  # st-01
    files = {"one.safetensors": {"x": ones()}, "two.safetensors": {"y": ones()}}
    directory = checkpoint(tmp_path, files, {"x": "one.safetensors", "y": "two.safetensors"})
    shard = directory / "two.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(ModelFileError, match=r"two\.safetensors: tensor 'y' ends at byte 8.*truncated"):
        open_model(directory)


def test_a_tensor_that_its_shard_lacks_is_named(tmp_path: Path) -> None:
    weight_map = {"x": "one.safetensors", "y": "one.safetensors"}
    with pytest.raises(ModelFileError, match=r"one\.safetensors doesn't hold tensor 'y'"):
        open_model(checkpoint(tmp_path, {"one.safetensors": {"x": ones()}}, weight_map))


@pytest.mark.parametrize(
    "name", ["../one.safetensors", "/etc/passwd", "a/one.safetensors", "", ".", "..", "a\0b", 7, None]
)
def test_an_index_cannot_point_out_of_its_directory(tmp_path: Path, name: object) -> None:
    save_file({"x": ones()}, tmp_path / "one.safetensors")
    inner = tmp_path / "inner"
    inner.mkdir()
    with pytest.raises(ModelFileError, match=r"index\.json.*'x'"):
        open_model(checkpoint(inner, {"one.safetensors": {"x": ones()}}, {"x": name}))


@pytest.mark.parametrize(
    "raw", ["", "[]", "{}", "not json", '{"weight_map": {}}', '{"weight_map": []}', '{"weight_map": null}', "[" * 10**5,
            '{"weight_map": {"x": "one.safetensors", "x": "two.safetensors"}}']
)  # fmt: skip
def test_a_bad_index_is_named(tmp_path: Path, raw: str) -> None:  # st-01
    directory = checkpoint(tmp_path, {"one.safetensors": {"x": ones()}})
    (directory / INDEX).write_text(raw)
    with pytest.raises(ModelFileError, match=r"index\.json"):
        open_model(directory)


def test_a_foreign_type_is_refused_when_asked_for(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    kinds = {"I64": 8, "F64": 8, "BOOL": 1, "U8": 1, "F8_E4M3": 1, "I32": 4}
    header, begin = {}, 0
    for kind, size in kinds.items():
        header[kind] = entry(kind, [3], [begin, begin + 3 * size])
        begin += 3 * size
    header["fine"] = entry("F16", [1], [begin, begin + 2])
    (tmp_path / "model.safetensors").write_bytes(safetensors(header, bytes(begin + 2)))
    with open_model(tmp_path) as model:
        assert len(model.tensors) == len(kinds) + 1
        assert model.tensors["fine"].shape == (1,)
        for kind in kinds:
            assert kind in model.tensors
            with pytest.raises(UnsupportedModelError, match=f"tensor '{kind}' has type {kind}"):
                _ = model.tensors[kind]


@pytest.mark.parametrize("raw", ["[]", "{", '{"a": 1, "a": 2}', "", "\udcff"])
def test_a_bad_config_is_named(tmp_path: Path, raw: str) -> None:
    checkpoint(tmp_path, {"model.safetensors": {"x": ones()}})
    (tmp_path / "config.json").write_text(raw, errors="surrogateescape")
    with pytest.raises(ModelFileError, match=r"config\.json"):
        open_model(tmp_path)


def test_what_is_missing_beside_the_weights_is_named(tmp_path: Path) -> None:
    save_file({"x": ones()}, tmp_path / "model.safetensors")
    with pytest.raises(ModelFileError, match=r"no config\.json"):
        open_model(tmp_path)
    with pytest.raises(ModelFileError, match="name its directory"):
        open_model(tmp_path / "model.safetensors")


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelNotFoundError, match=r"no model\.safetensors"):
        open_model(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04")
    with pytest.raises(ModelFileError, match=r"pytorch_model\.bin.*doesn't unpickle"):
        open_model(tmp_path)
