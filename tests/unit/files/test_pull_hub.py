"""Pulling from a hub that this machine plays."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from forge import good_gguf
from servers import COMMIT, Server, hub_of, running, sha256

from freehold.errors import DownloadError, ResourceError, UnsupportedModelError
from freehold.files import disk, layout, store
from freehold.files.model import open_model
from freehold.files.progress import Progress
from freehold.files.safetensors_write import write_checkpoint_tensors
from freehold.files.tensor_source import TensorSource
from freehold.files.tensors import DType


@pytest.fixture(autouse=True)
def _own_hub_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No token and no cache of the user's, no progress bars, no proxy on the way to this machine."""
    for name in [name for name in os.environ if name.startswith("HF_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))


def checkpoint(directory: Path, max_file_bytes: int = 10**9) -> dict[str, bytes]:
    """Files of a repository with safetensors, and some that nobody should fetch."""
    directory.mkdir(parents=True)
    data = np.arange(1 << 20, dtype=np.uint8)
    sources = [TensorSource.of(name, DType.F32, (1 << 18,), data) for name in ("a", "b", "c")]
    write_checkpoint_tensors(directory, sources, max_file_bytes)
    (directory / "config.json").write_text('{"model_type": "llama"}')
    (directory / "tokenizer.json").write_text("{}")
    (directory / "chat_template.jinja").write_text("x")
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    others = {
        "pytorch_model.bin": b"pickle",
        "onnx/model.onnx": b"x",
        "original/model.safetensors": b"x",
        "run.py": b"x",
    }
    return files | others


FETCHED = {"config.json", "tokenizer.json", "chat_template.jinja", "model.json"}


@contextmanager
def hub(files: dict[str, bytes], repository: str = "org/name", revision: str = "main") -> Iterator[Server]:
    with running(hub_of(repository, files, revision=revision)) as server:
        yield server


def pull(name: str, home: Path, server: Server) -> tuple[Path, list[Progress]]:
    reports: list[Progress] = []
    path = store.pull(name, home, reports.append, endpoint=server.url)
    assert store.locate(name, home) == path
    return path, reports


@pytest.mark.parametrize("max_file_bytes", [10**9, 1 << 20])
def test_a_checkpoint_lands_in_the_store(tmp_path: Path, max_file_bytes: int) -> None:
    files = checkpoint(tmp_path / "source", max_file_bytes)
    weights = {name for name in files if name.startswith("model")}
    assert len(weights) == (1 if max_file_bytes > 1 << 20 else 4)
    with hub(files) as server:
        path, reports = pull("org/name", tmp_path / "home", server)
        assert {found.name for found in path.iterdir()} == FETCHED | weights
        for name in weights:
            assert (path / name).read_bytes() == files[name]
        with open_model(path) as model:
            assert set(model.tensors) == {"a", "b", "c"}
        downloading = [report for report in reports if report.phase == "downloading"]
        assert (
            downloading[-1].done_bytes
            == downloading[-1].total_bytes
            == sum(len(files[found.name]) for found in path.iterdir() if found.name != "model.json")
        )
        server.requests.clear()
        assert pull("org/name", tmp_path / "home", server)[0] == path
        assert server.requests == []
    manifest = layout.read_manifest(tmp_path / "home" / "models" / "org--name")
    assert manifest is not None
    assert COMMIT in manifest.source
    assert manifest.files == {name: sha256(files[name]) for name in weights if name.endswith(".safetensors")}
    assert not list((tmp_path / "home" / "downloads").iterdir())


def test_the_revision_asked_for_is_fetched(tmp_path: Path) -> None:
    with hub(checkpoint(tmp_path / "source"), revision="v2") as server:
        path, _ = pull("org/name@v2", tmp_path / "home", server)
        assert path != (tmp_path / "home" / "models" / "org--name")
        server.headers["/api/models/org/name/revision/absent"] = {"X-Error-Code": "RevisionNotFound"}
        with pytest.raises(DownloadError, match="org/name has no revision 'absent'"):
            store.pull("org/name@absent", tmp_path / "home", lambda _: None, endpoint=server.url)


GGUF = good_gguf().encode()


def test_the_only_gguf_model_of_a_repository_is_fetched(tmp_path: Path) -> None:
    files = {"m-q4.gguf": GGUF, "README.md": b"x", "config.json": b"{}"}
    with hub(files) as server:
        path, _ = pull("org/name", tmp_path, server)
    assert path.name == "m-q4.gguf"
    assert {found.name for found in path.parent.iterdir()} == {"m-q4.gguf", "model.json"}
    with open_model(path) as model:
        assert model.format == "gguf"


def test_of_several_gguf_models_one_must_be_named(tmp_path: Path) -> None:
    files = {f"m-{kind}.gguf": GGUF + b"" for kind in ("q4", "q8")}
    with hub(files) as server:
        with pytest.raises(DownloadError, match=r"m-q4\.gguf, m-q8\.gguf.*name one, such as org/name/m-q4\.gguf"):
            store.pull("org/name", tmp_path, lambda _: None, endpoint=server.url)
        with pytest.raises(DownloadError, match=r"no file 'm-q5\.gguf'; it has m-q4\.gguf, m-q8\.gguf"):
            store.pull("org/name/m-q5.gguf", tmp_path, lambda _: None, endpoint=server.url)
        path, _ = pull("org/name/m-q8.gguf", tmp_path, server)
        assert {found.name for found in path.parent.iterdir()} == {"m-q8.gguf", "model.json"}


def test_all_shards_of_a_gguf_model_are_fetched(tmp_path: Path) -> None:
    shards = [f"m-0000{number}-of-00002.gguf" for number in (1, 2)]
    with hub({"other.gguf": GGUF, **dict.fromkeys(shards, GGUF)}) as server:
        path, _ = pull(f"org/name/{shards[1]}", tmp_path, server)
    assert path.name == shards[0]
    assert {found.name for found in path.parent.iterdir()} == {*shards, "model.json"}


def test_a_repository_without_weights_is_refused(tmp_path: Path) -> None:
    with (
        hub({"config.json": b"{}", "pytorch_model.bin": b"x"}) as server,
        pytest.raises(UnsupportedModelError, match="neither"),
    ):
        store.pull("org/name", tmp_path, lambda _: None, endpoint=server.url)


def test_an_unknown_repository_is_said_so(tmp_path: Path) -> None:
    with hub({}) as server:
        path = "/api/models/org/absent"
        server.headers[path] = {"X-Error-Code": "RepoNotFound"}
        with pytest.raises(DownloadError, match="org/absent isn't on the hub, or is private"):
            store.pull("org/absent", tmp_path, lambda _: None, endpoint=server.url)


def test_an_unreachable_hub_is_said_so(tmp_path: Path) -> None:
    with hub({}) as server:
        url = server.url
    with pytest.raises(DownloadError, match="can't be fetched"):
        store.pull("org/name", tmp_path, lambda _: None, endpoint=url)


def test_another_file_than_the_hub_vouches_for_is_refused_and_removed(tmp_path: Path) -> None:
    files = checkpoint(tmp_path / "source")
    with hub(files) as server:
        weights = f"/org/name/resolve/{COMMIT}/model.safetensors"
        good = server.files[weights]
        server.files[weights] = good[:-1] + b"?"
        with pytest.raises(
            DownloadError, match=rf"model\.safetensors has SHA-256 .*vouches for {sha256(good)}.*deleted"
        ):
            store.pull("org/name", tmp_path / "home", lambda _: None, endpoint=server.url)
        assert store.list_models(tmp_path / "home") == []
        assert not list((tmp_path / "home").rglob("*.safetensors"))
        server.files[weights] = good
        pull("org/name", tmp_path / "home", server)


def test_a_later_pull_goes_on_where_one_broke_off(tmp_path: Path) -> None:
    files = checkpoint(tmp_path / "source", 1 << 20)
    shard = "model-00002-of-00003.safetensors"
    path = f"/org/name/resolve/{COMMIT}/{shard}"
    with hub(files) as server:
        server.statuses[path] = 403
        with pytest.raises(DownloadError):
            store.pull("org/name", tmp_path / "home", lambda _: None, endpoint=server.url)
        assert store.list_models(tmp_path / "home") == []
        server.statuses.clear()
        server.requests.clear()
        pull("org/name", tmp_path / "home", server)
        fetched = {
            found.rpartition("/")[2] for method, found, _ in server.requests if method == "GET" and "/resolve/" in found
        }
        assert shard in fetched
        assert len(fetched) < len([name for name in files if name.startswith("model-")]) + 3


def test_too_small_a_disk_is_noticed_before_downloading(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Usage:
        free = 1_000_000

    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _path: Usage)
    with hub(checkpoint(tmp_path / "source")) as server:
        with pytest.raises(ResourceError, match="1 MB free"):
            store.pull("org/name", tmp_path / "home", lambda _: None, endpoint=server.url)
        assert not [found for _, found, _ in server.requests if "/resolve/" in found]


@pytest.mark.parametrize("name", ["../../evil.gguf", "/evil.gguf", "a/../../evil.safetensors", "..", ".", ""])
def test_a_hub_cannot_write_outside_the_store(tmp_path: Path, name: str) -> None:
    files = checkpoint(tmp_path / "source")
    with hub(files) as server:
        for path, raw in server.files.items():
            if path.startswith("/api/models") and "tree" not in path:
                info = json.loads(raw)
                info["siblings"].append({"rfilename": name, "size": 4})
                server.files[path] = json.dumps(info).encode()
        before = {path for path in tmp_path.rglob("*") if "home" not in path.parts}
        pull("org/name", tmp_path / "home", server)
        assert {path for path in tmp_path.rglob("*") if "home" not in path.parts} == before


@pytest.mark.parametrize("commit", ["main", "../../../../x", "", "0" * 39])
def test_a_hub_cannot_name_a_commit_that_is_none(tmp_path: Path, commit: str) -> None:
    with hub({"m.gguf": GGUF}) as server:
        server.files["/api/models/org/name"] = json.dumps({"id": "org/name", "sha": commit, "siblings": []}).encode()
        with pytest.raises(DownloadError, match="40 characters"):
            store.pull("org/name", tmp_path, lambda _: None, endpoint=server.url)
