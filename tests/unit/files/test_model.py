"""One view of a model on disk: side files, fingerprints, and changes under our feet."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from forge import gguf_with, good_gguf

from freehold.errors import ModelFileError, ModelNotFoundError
from freehold.files.model import open_model
from freehold.files.safetensors_write import write_safetensors
from freehold.files.tensor_source import TensorSource
from freehold.files.tensors import DType

OLD_NS = time.time_ns() - 3_600_000_000_000


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(good_gguf().encode())
    os.utime(path, ns=(OLD_NS, OLD_NS))
    return path


@pytest.fixture
def hugging_face(tmp_path: Path) -> Path:
    directory = tmp_path / "checkpoint"
    directory.mkdir()
    (directory / "config.json").write_text('{"model_type": "llama"}')
    (directory / "tokenizer.json").write_text('{"model": {}}')
    (directory / "chat_template.jinja").write_text("{{ messages }}")
    write_safetensors(directory / "model.safetensors", [TensorSource.of("x", DType.F32, (1,), np.zeros(4, np.uint8))])
    return directory


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour later: nothing was just written. (No one can set back a file's time of change.)"""
    true_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: true_ns() + 3_600_000_000_000)


def fingerprint(path: Path, cache_dir: Path | None = None) -> str:
    with open_model(path, cache_dir=cache_dir) as model:
        return model.fingerprint()


def test_side_files_of_a_checkpoint(hugging_face: Path) -> None:
    with open_model(hugging_face) as model:
        assert model.tokenizer_json == hugging_face / "tokenizer.json"
        assert model.read_json("tokenizer.json") == {"model": {}}
        assert model.read_text("chat_template.jinja") == "{{ messages }}"
        assert model.read_json("generation_config.json") is None
        assert model.read_text("absent.txt") is None
        for name in ("../model.gguf", "/etc/passwd", "a/b", "", "..", "."):
            with pytest.raises(ValueError, match="plain file name"):
                model.read_text(name)
        (hugging_face / "bad.json").write_bytes(b"\xff")
        with pytest.raises(ModelFileError, match=r"bad\.json"):
            model.read_json("bad.json")
        with pytest.raises(ModelFileError, match=r"bad\.json"):
            model.read_text("bad.json")


def test_a_gguf_file_has_no_side_files(gguf: Path) -> None:
    (gguf.parent / "tokenizer.json").write_text("{}")
    with open_model(gguf) as model:
        assert model.format == "gguf"
        assert model.tokenizer_json is None
        assert model.read_json("tokenizer.json") is None


def test_a_directory_with_both_formats_counts_as_a_checkpoint(hugging_face: Path) -> None:
    (hugging_face / "model.gguf").write_bytes(good_gguf().encode())
    with open_model(hugging_face) as model:
        assert model.format == "hf"


def test_metadata_cannot_be_written_to(gguf: Path) -> None:
    with open_model(gguf) as model, pytest.raises(TypeError):
        model.metadata["general.architecture"] = "x"  # type: ignore[index]


def test_fingerprints_follow_contents_not_paths(gguf: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere.gguf"
    copy.write_bytes(gguf.read_bytes())
    assert fingerprint(gguf) == fingerprint(copy)
    assert len(fingerprint(gguf)) == 64
    copy.write_bytes(gguf_with(data=bytes(31) + b"\1" + bytes(128)))
    assert fingerprint(gguf) != fingerprint(copy)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "chat_template.jinja", "generation_config.json"])
def test_side_files_belong_to_the_fingerprint(hugging_face: Path, name: str) -> None:
    before = fingerprint(hugging_face)
    assert fingerprint(hugging_face) == before
    (hugging_face / name).write_text('{"changed": 1}')
    assert fingerprint(hugging_face) != before


@pytest.mark.usefixtures("settled")
def test_digests_are_remembered_by_path_size_and_times(gguf: Path, tmp_path: Path) -> None:
    cache = tmp_path / "hashes"
    true = fingerprint(gguf, cache)
    (remembered,) = cache.iterdir()
    known = json.loads(remembered.read_text())
    assert known["path"] == str(gguf)
    remembered.write_text(json.dumps({**known, "sha256": "0" * 64}))
    assert fingerprint(gguf, cache) != true  # so it was taken from there
    for field, value in (("format", 1), ("size", 1), ("mtime_ns", 1), ("ctime_ns", 1), ("inode", 1), ("device", 1)):
        remembered.write_text(json.dumps({**known, "sha256": "0" * 64, field: value}))
        assert fingerprint(gguf, cache) == true, field
    for rubbish in ("", "[]", "{}", "not json", "[" * 10**5):
        remembered.write_text(rubbish)
        assert fingerprint(gguf, cache) == true
    remembered.write_text(json.dumps({**known, "sha256": "0" * 64}))
    os.utime(gguf, ns=(OLD_NS + 1, OLD_NS + 1))
    assert fingerprint(gguf, cache) == true


@pytest.mark.usefixtures("settled")
def test_contents_changed_in_place_are_noticed_though_the_time_is_set_back(gguf: Path, tmp_path: Path) -> None:
    cache = tmp_path / "hashes"
    before = fingerprint(gguf, cache)
    assert [entry.name for entry in cache.iterdir()]  # it was remembered
    size = gguf.stat().st_size
    with gguf.open("r+b") as file:
        file.seek(size - 1)
        file.write(b"\x7f")
    os.utime(gguf, ns=(OLD_NS, OLD_NS))
    assert (gguf.stat().st_size, gguf.stat().st_mtime_ns) == (size, OLD_NS)
    after = fingerprint(gguf, cache)
    assert after != before
    assert after == fingerprint(gguf)


def test_digests_of_a_file_that_was_just_written_are_not_remembered(gguf: Path, tmp_path: Path) -> None:
    """Whatever its time of content says."""
    fingerprint(gguf, tmp_path / "hashes")
    assert not (tmp_path / "hashes").exists()


def test_a_cache_that_cannot_be_written_is_as_good_as_none(gguf: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert fingerprint(gguf, blocked / "hashes") == fingerprint(gguf)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 10)


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def rewrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"GGUF")


def rewrite_and_set_the_time_back(path: Path) -> None:
    time.sleep(0.02)  # longer than the clock of file times may stand still
    rewrite(path)
    os.utime(path, ns=(OLD_NS, OLD_NS))


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.rename(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (truncate, "truncated"),
        (grow, "changed"),
        (rewrite, "changed"),
        (rewrite_and_set_the_time_back, "changed"),
        (replace, "replaced"),
        (Path.unlink, "removed"),
    ],
)
def test_a_file_that_changes_while_open_is_noticed(
    gguf: Path, tmp_path: Path, change: Callable[[Path], None], words: str
) -> None:
    with open_model(gguf, cache_dir=tmp_path / "hashes") as model:
        model.check_unchanged()
        model.fingerprint()  # a remembered digest must not hide the change
        change(gguf)
        with pytest.raises(ModelFileError, match=rf"model\.gguf was {words}"):
            model.check_unchanged()
        with pytest.raises(ModelFileError, match=rf"model\.gguf was {words}"):
            model.fingerprint()


def resident_bytes() -> int:
    """Mapped file pages of this process that are in memory."""
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("RssFile")]
    return int(line.split()[1]) * 1024


def test_pages_are_released_and_come_back(tmp_path: Path) -> None:
    size = 64 << 20
    data = np.ones(size, np.uint8)
    write_safetensors(tmp_path / "model.safetensors", [TensorSource.of("x", DType.F32, (size // 4,), data)])
    (tmp_path / "config.json").write_text("{}")
    with open_model(tmp_path) as model:
        before = resident_bytes()
        tensor = model.tensors["x"]
        assert tensor.data.sum() == size
        assert resident_bytes() - before > size // 2
        model.release_pages()
        assert resident_bytes() - before < size // 8
        assert tensor.data.sum() == size


def open_files() -> set[str]:
    """What this process holds open by a descriptor; other tests' sockets may close meanwhile, so no count of all."""
    return {os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")}


def test_closing_gives_descriptors_back_and_keeps_tensors_alive(gguf: Path) -> None:
    model = open_model(gguf)
    norm = model.tensors["norm"].data
    model.close()
    model.close()
    assert norm.tobytes() == bytes(range(32))
    del norm, model
    assert str(gguf) not in open_files()


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="does not exist"):
        open_model(tmp_path / "absent.gguf")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelNotFoundError, match="does not exist"):
        open_model(tmp_path / "file" / "below")
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelFileError, match="not a regular file"):
        open_model(tmp_path / "pipe.gguf")
    with pytest.raises(ModelFileError, match="not a regular file"):
        open_model(Path("/dev/null"))
    (tmp_path / "loop.gguf").symlink_to("loop.gguf")
    with pytest.raises(ModelFileError, match="can't be opened"):
        open_model(tmp_path / "loop.gguf")
