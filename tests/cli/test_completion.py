"""What a shell offers, by the protocol that its script speaks with the command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.test_commands import TIMEOUT_S

from freehold.cli import completion
from freehold.files import store
from freehold.loadtest.experiments.catalog import EXPERIMENTS
from freehold.settings import SETTINGS


def offered(words: str, home: str | Path) -> list[str]:
    """What bash is told for the last word, which may be empty."""
    variables = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_FREEHOLD_COMPLETE": "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-m", "freehold"],
        env={**os.environ, **variables, "FREEHOLD_HOME": str(home)},
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_models_of_the_store_or_files_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert offered("freehold serve ./mod", tmp_path) == ["file,./mod"]
    assert offered("freehold rm ", "/dev/null") == ["file,"], "without a store nothing is said"
    stored = [store.StoredModel(name, tmp_path, "", 1) for name in ("ours", "org/other", "smollm2")]
    monkeypatch.setattr(store, "list_models", lambda _home: stored)
    assert completion.stored_models("o") == ["ours", "org/other"]


def test_values_of_settings_data_sets_and_experiments_are_offered(tmp_path: Path) -> None:
    assert offered("freehold serve x --kv-cache-dtype ", tmp_path) == ["plain,bf16", "plain,int8", "plain,f32"]
    assert offered("freehold bench --dataset-name m", tmp_path) == ["plain,mooncake", "plain,multi_turn"]
    assert offered("freehold experiment c", tmp_path) == ["plain,cached-decoding", "plain,concurrency"]


def test_the_experiments_offered_are_those_there_are() -> None:
    assert tuple(EXPERIMENTS) == completion.EXPERIMENT_NAMES


def test_every_choice_that_is_offered_is_taken() -> None:
    with_choices = [setting for setting in SETTINGS if setting.kind.choices]
    assert len(with_choices) > 5
    for setting in with_choices:
        assert [setting.kind.parse(choice) for choice in setting.kind.choices] == list(setting.kind.choices)
