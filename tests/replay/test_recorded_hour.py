"""An hour of a real server in short: everything at once, the engine killed meanwhile, and every token comes again."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mixed_load import KINDS, MixedLoad
from tests.server.test_end_to_end import TIMEOUT_S, Served

NUM_REQUESTS = 90
NUM_LINES = 10
SMALL = ("--kv-cache-memory-bytes", "14M", "--max-model-len", "512", "--max-num-seqs", "12", "--block-size", "16")
"""A cache of about two of the longest requests."""
LONG = {"ignore_eos": True}
NUM_LONG = 8
"""Answers at once that outgrow the cache together, so that some are preempted."""


def answered(load: MixedLoad) -> set[str]:
    """Kinds of requests of which some were answered."""
    return {kind for kind, end in load.ends if end in {"200", "left"}}


@pytest.fixture(scope="module")
def folder(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hour")
    folder = path / "recording"
    flags = ("--record", "full", "--record-dir", str(folder), "--state-dir", str(path / "state"), *SMALL)
    served = Served(smollm2_path, *flags)
    with ThreadPoolExecutor(NUM_LONG) as pool:
        list(pool.map(lambda seed: served.chat(max_tokens=150, seed=seed, extra_body=LONG), range(NUM_LONG)))
    load = MixedLoad(served.url, seed=5)
    batch = threading.Thread(target=load.batch, args=(NUM_LINES, 5))
    batch.start()
    load.run(num_requests=NUM_REQUESTS // 2)
    killing = threading.Timer(1.0, os.kill, (served.engine_pid(), signal.SIGKILL))
    killing.start()
    load.run(num_requests=NUM_REQUESTS // 2)
    killing.join()
    while not set(KINDS) <= answered(load):  # the engine's death may have met all of a kind
        load.run(num_requests=16)
    batch.join()
    load.close()
    served.stop()
    assert load.ends["batch line", "completed"] == NUM_LINES
    return folder


def replay(folder: Path, tmp_path: Path, *flags: str) -> tuple[int, dict[str, Any], str]:
    """The command's exit code, report and words."""
    file = tmp_path / "report.json"
    command = [sys.executable, "-m", "freehold", "replay", str(folder), "--report", str(file), *flags]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    first, *others = ended.stderr.splitlines()
    assert first.startswith("replaying ")
    said = [line for line in others if "WARNING the KV cache is too small" not in line]
    assert not said, "its cache is as small as the server's was, and nothing else is to be said"
    return ended.returncode, json.loads(file.read_text()), ended.stdout


@pytest.mark.slow
def test_everything_comes_again_after_a_restart(folder: Path, tmp_path: Path) -> None:
    code, report, words = replay(folder, tmp_path)
    assert (code, report["num_differing"]) == (0, 0), words
    assert "no differences" in words
    assert report["num_requests"] >= NUM_REQUESTS // 2
    assert report["num_same"] == report["num_compared"] > 0.5 * report["num_requests"]
    assert min(report["num_partial"], report["num_preemptions_recorded"], report["num_cached_recorded"]) > 0
    assert report["failed"].keys() <= {"engine_died"}


@pytest.mark.slow
def test_one_bit_of_the_real_model_and_other_formats_are_named(
    folder: Path, smollm2_path: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model.gguf"
    shutil.copyfile(smollm2_path, model)
    with model.open("r+b") as file:
        file.seek(-1_000_000, os.SEEK_END)
        (byte,) = file.read(1)
        file.seek(-1_000_000, os.SEEK_END)
        file.write(bytes([byte ^ 0x10]))
    planted = {
        "other model hash": ("--model", str(model)),
        "other numeric format of activations": ("--activations", "float"),
        "other numeric format of the KV cache": ("--kv-cache-dtype", "int8"),
    }
    for cause, flags in planted.items():
        code, report, words = replay(folder, tmp_path, "--limit", "12", *flags)
        assert code == 1, words
        assert f"likely cause: {cause}" in words
        assert {differing["cause"].split(" (")[0] for differing in report["differing"]} == {cause}
