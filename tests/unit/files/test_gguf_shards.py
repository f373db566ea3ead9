"""GGUF models over several files: whichever is named, the same model; what is wrong is named."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from freehold.errors import ModelFileError, ModelNotFoundError
from freehold.files.gguf_write import write_gguf
from freehold.files.model import open_model
from freehold.files.tensor_source import TensorSource
from freehold.files.tensors import DType


def vector(name: str, value: float) -> TensorSource:
    return TensorSource.of(name, DType.F32, (8,), np.full(8, value, "<f4").view(np.uint8))


def write_shard(
    path: Path, number: int, count: int, total: int, tensors: Sequence[TensorSource], name: str = ""
) -> None:
    metadata = {"split.no": np.uint16(number), "split.count": np.uint16(count), "split.tensors.count": np.int32(total)}
    general = {"general.architecture": "llama", "general.name": name} if number == 0 else {}
    write_gguf(path, {**general, **metadata}, tensors)


def write_split(directory: Path, prefix: str, value: float = 0, count: int = 3) -> list[Path]:
    """A model of one tensor a shard, named as llama.cpp names them."""
    directory.mkdir(exist_ok=True)
    paths = [directory / f"{prefix}-{number + 1:05}-of-{count:05}.gguf" for number in range(count)]
    for number, path in enumerate(paths):
        write_shard(path, number, count, count, [vector(f"t{number}", value + number)], prefix)
    return paths


def contents(path: Path) -> tuple[str, dict[str, float]]:
    with open_model(path) as model:
        return model.metadata["general.name"], {
            name: float(tensor.data.view("<f4")[0]) for name, tensor in model.tensors.items()
        }


EXPECTED = ("m", {"t0": 0.0, "t1": 1.0, "t2": 2.0})


def test_any_shard_or_the_directory_opens_the_whole_model(tmp_path: Path) -> None:  # gg-02
    for path in (*write_split(tmp_path, "m"), tmp_path):
        assert contents(path) == EXPECTED


def test_fingerprints_do_not_depend_on_the_shard_named(tmp_path: Path) -> None:
    fingerprints = set()
    for path in (*write_split(tmp_path, "m"), tmp_path):
        with open_model(path) as model:
            fingerprints.add(model.fingerprint())
    assert len(fingerprints) == 1


def test_metadata_decides_the_order_not_the_names(tmp_path: Path) -> None:  # gg-02
    paths = write_split(tmp_path, "m")
    spare = tmp_path / "spare"
    paths[0].rename(spare)
    paths[2].rename(paths[0])
    spare.rename(paths[2])
    for path in (*paths, tmp_path):
        assert contents(path) == EXPECTED


def test_shards_with_names_of_their_own_are_found(tmp_path: Path) -> None:
    for name, path in zip(("z.gguf", "a.gguf", "m.gguf"), write_split(tmp_path, "m"), strict=True):
        path.rename(tmp_path / name)
    write_gguf(tmp_path / "unsplit.gguf", {"general.name": "another"}, [vector("t0", 9)])
    assert contents(tmp_path / "a.gguf") == EXPECTED
    (tmp_path / "unsplit.gguf").unlink()
    assert contents(tmp_path) == EXPECTED


@pytest.mark.parametrize("missing", range(3))
@pytest.mark.parametrize("by_directory", [True, False])
def test_a_missing_shard_is_named(tmp_path: Path, missing: int, by_directory: bool) -> None:  # gg-02
    paths = write_split(tmp_path, "m")
    paths.pop(missing).unlink()
    with pytest.raises(
        ModelFileError, match=rf"shard {missing + 1} of 3 \(m-0000{missing + 1}-of-00003\.gguf\) is missing"
    ):
        open_model(tmp_path if by_directory else paths[0])


def test_a_claim_of_many_shards_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m-00001-of-00002.gguf"
    write_gguf(path, {"split.no": 0, "split.count": 2**32 - 1, "split.tensors.count": 1}, [vector("t0", 0)])
    with pytest.raises(ModelFileError, match="shard 2 of 4294967295"):
        open_model(path)


def test_shards_of_two_models_in_one_directory(tmp_path: Path) -> None:  # gg-02
    first, second = write_split(tmp_path, "one"), write_split(tmp_path, "two", 10)
    assert contents(first[1])[0] == "one"
    assert contents(second[2]) == ("two", {"t0": 10.0, "t1": 11.0, "t2": 12.0})
    with pytest.raises(ModelFileError, match=r"holds 2 models.*one-00001-of-00003\.gguf.*two-00001-of-00003\.gguf"):
        open_model(tmp_path)


def test_a_shard_of_a_model_of_other_size_is_named(tmp_path: Path) -> None:
    paths = write_split(tmp_path, "m")
    write_shard(paths[1], 1, 4, 3, [vector("t1", 1)])
    with pytest.raises(ModelFileError, match=r"m-00002-of-00003\.gguf belongs to another model"):
        open_model(paths[0])


def test_a_shard_in_another_ones_place_is_named(tmp_path: Path) -> None:
    paths = write_split(tmp_path, "m")
    shutil.copy(paths[0], paths[1])
    with pytest.raises(
        ModelFileError, match=r"m-0000\d-of-00003\.gguf and m-0000\d-of-00003\.gguf are both shard 1 of 3"
    ):
        open_model(paths[2])


def test_a_shard_with_a_tensor_of_another_shard_is_named(tmp_path: Path) -> None:
    paths = write_split(tmp_path, "m")
    write_shard(paths[1], 1, 3, 3, [vector("t0", 1)])
    with pytest.raises(
        ModelFileError, match=r"m-00002-of-00003\.gguf and m-00001-of-00003\.gguf both hold tensor 't0'"
    ):
        open_model(tmp_path)


def test_a_shard_with_too_many_tensors_is_named(tmp_path: Path) -> None:
    paths = write_split(tmp_path, "m")
    write_shard(paths[2], 2, 3, 3, [vector("t2", 1), vector("t3", 1)])
    with pytest.raises(ModelFileError, match=r"split\.tensors\.count is 3.*m-00003-of-00003\.gguf: 2"):
        open_model(paths[0])


def test_joined_shards_are_explained(tmp_path: Path) -> None:  # gg-03
    paths = write_split(tmp_path / "shards", "m")
    joined = tmp_path / "joined.gguf"
    joined.write_bytes(b"".join(path.read_bytes() for path in paths))
    with pytest.raises(ModelFileError, match=r"joined\.gguf.*joined with `cat`.*llama-gguf-split --merge"):
        open_model(joined)


@pytest.mark.parametrize(
    ("key", "value"),
    [("split.no", "0"), ("split.count", "2"), ("split.count", -2), ("split.no", True), ("split.no", 5)],
)
def test_wrong_split_keys_are_named(tmp_path: Path, key: str, value: object) -> None:
    good = {"split.no": 0, "split.count": 2, "split.tensors.count": 1}
    write_gguf(tmp_path / "m.gguf", {**good, key: value}, [vector("t0", 0)])
    with pytest.raises(ModelFileError, match=key):
        open_model(tmp_path / "m.gguf")


def test_a_missing_tensor_count_is_named(tmp_path: Path) -> None:
    for number in range(2):
        metadata = {"split.no": number, "split.count": 2}
        write_gguf(tmp_path / f"m-0000{number + 1}-of-00002.gguf", metadata, [vector(f"t{number}", 0)])
    with pytest.raises(ModelFileError, match=r"split\.tensors\.count"):
        open_model(tmp_path)


def test_one_shard_of_one_is_a_whole_model(tmp_path: Path) -> None:
    write_shard(tmp_path / "m.gguf", 0, 1, 1, [vector("t0", 5)], "m")
    assert contents(tmp_path / "m.gguf") == contents(tmp_path) == ("m", {"t0": 5.0})


def test_a_directory_without_a_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="holds no"):
        open_model(tmp_path)


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    paths = write_split(tmp_path, "m")
    paths[1].write_bytes(paths[1].read_bytes()[:-20])
    for path in (*paths, tmp_path):
        with pytest.raises(ModelFileError, match=r"m-00002-of-00003\.gguf: tensor 't1'.*truncated"):
            open_model(path)
