"""Hostile and damaged model files are refused at once, in little memory, with the key or tensor named."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from forge import Gguf, Info, array, entry, good_gguf, pair, safetensors, text
from hostile import gguf_cases, safetensors_cases

from freehold.errors import FreeholdError, ModelFileError
from freehold.files import gguf
from freehold.files.model import ModelFiles, open_model
from freehold.files.tensors import Tensor

GGUF_CASES = gguf_cases()
SAFETENSORS_CASES = safetensors_cases()
LIMIT_S = 1.0


def put_gguf(directory: Path, raw: bytes) -> Path:
    path = directory / "bad.gguf"
    path.write_bytes(raw)
    return path


def put_safetensors(directory: Path, raw: bytes) -> Path:
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(raw)
    return directory


def files_held_below(path: Path) -> list[str]:
    """The files at or below `path` that this process holds open; other tests' sockets may close meanwhile."""
    held = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    return [name for name in held if Path(name).is_relative_to(path.resolve())]


def refusal(path: Path) -> str:
    """What the error says; the error itself is gone, and with it what it kept open."""
    try:
        open_model(path)
    except ModelFileError as error:
        return str(error)
    pytest.fail("accepted")


def assert_refused(path: Path, words: str) -> None:
    start = time.process_time()
    message = refusal(path)
    assert time.process_time() - start < LIMIT_S
    assert path.name in message
    assert words in message
    assert len(message) < 1000
    assert files_held_below(path) == []


def test_there_are_many_cases_and_none_is_large() -> None:
    cases = [*GGUF_CASES.values(), *SAFETENSORS_CASES.values()]
    assert len(cases) >= 300
    assert max(len(raw) for raw, _ in cases) <= 1_100_000


@pytest.mark.parametrize("name", list(GGUF_CASES))
def test_hostile_gguf_is_refused(name: str, tmp_path: Path) -> None:  # se-07
    raw, words = GGUF_CASES[name]
    assert_refused(put_gguf(tmp_path, raw), words)


@pytest.mark.parametrize("name", list(SAFETENSORS_CASES))
def test_hostile_safetensors_is_refused(name: str, tmp_path: Path) -> None:
    raw, words = SAFETENSORS_CASES[name]
    assert_refused(put_safetensors(tmp_path, raw), words)


@pytest.mark.parametrize("num_bytes", [1, 24, 64, 1000])
def test_however_much_is_read_at_first_the_refusals_are_the_same(
    num_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file's beginning is read in growing pieces; where they end has no meaning."""
    for number, (name, case) in enumerate(GGUF_CASES.items()):
        path = put_gguf(tmp_path, case[0])
        whole = refusal(path)
        monkeypatch.setattr(gguf, "HEAD_BYTES", num_bytes)
        assert refusal(path) == whole, (number, name)
        monkeypatch.undo()


MEMORY_TRIAL = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from hostile import gguf_cases, safetensors_cases
from freehold.errors import ModelFileError
from freehold.files.model import open_model
directory = Path(sys.argv[2])
(directory / "config.json").write_text("{}")
cases = [("x.gguf", raw) for raw, _ in gguf_cases().values()]
cases += [("model.safetensors", raw) for raw, _ in safetensors_cases().values()]
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20),) * 2)
for name, raw in cases:
    (directory / name).write_bytes(raw)
    try:
        open_model(directory / name if name.endswith(".gguf") else directory)
    except ModelFileError:
        (directory / name).unlink()
    else:
        raise SystemExit("accepted")
try:
    bytearray(256 << 20)
except MemoryError:
    print("refused", len(cases), "and the limit holds")
"""


def test_all_hostile_files_together_stay_below_256_megabytes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MEMORY_TRIAL, str(Path(__file__).parent), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == f"refused {len(GGUF_CASES) + len(SAFETENSORS_CASES)} and the limit holds", done.stderr


def test_a_good_file_opens_and_no_beginning_of_it_does(tmp_path: Path) -> None:
    whole = good_gguf().encode()
    open_model(put_gguf(tmp_path, whole)).close()
    padding = 8
    for size in range(len(whole) - padding):
        with pytest.raises(ModelFileError, match=r"bad\.gguf"):
            open_model(put_gguf(tmp_path, whole[:size]))


def test_no_beginning_of_a_good_safetensors_file_opens(tmp_path: Path) -> None:
    whole = safetensors({"a": entry(), "b": entry("F16", [3, 2], [8, 20])}, bytes(range(20)))
    open_model(put_safetensors(tmp_path, whole)).close()
    for size in range(len(whole)):
        with pytest.raises(ModelFileError, match=r"model\.safetensors"):
            open_model(put_safetensors(tmp_path, whole[:size]))


def assert_sound(model: ModelFiles) -> None:
    """What was accepted can be read to its last byte, and is as large as its shape says."""
    for name in model.tensors:
        try:
            tensor: Tensor = model.tensors[name]
        except FreeholdError:
            continue
        elements = int(np.prod(tensor.shape, dtype=object))
        assert tensor.data.size == elements // tensor.dtype.block_elements * tensor.dtype.block_bytes
        tensor.data.sum()


def mutated(raw: bytes, rng: np.random.Generator) -> bytes:
    """One to four changes: random bytes, numbers at the edges of their type, pieces cut, doubled or inserted."""
    data = bytearray(raw)
    for _ in range(rng.integers(1, 5)):
        place = int(rng.integers(0, len(data))) if data else 0
        size = int(rng.integers(1, 40))
        match rng.integers(0, 6):
            case 0:
                data[place : place + 1] = rng.bytes(1)
            case 1:
                edge = int(rng.choice([0, 1, 2, 5, 7, 9, 255, 2**31, 2**32 - 1, 2**62, 2**63 - 1], 1)[0])
                data[place : place + 8] = edge.to_bytes(8, "little")
            case 2:
                data[place : place + 4] = int(rng.integers(0, 60)).to_bytes(4, "little")
            case 3:
                del data[place : place + size]
            case 4:
                data[place:place] = data[place : place + size]
            case _:
                data[place:place] = rng.bytes(size)
    return bytes(data)


def fuzz(tmp_path: Path, num_files: int, seed: int) -> tuple[int, int]:
    """Mutate good files of both formats; returns how many were refused and how many accepted."""
    header = {
        "__metadata__": {"format": "pt"},
        "a": entry(),
        "b": entry("BF16", [2, 3], [8, 20]),
        "c": entry("I8", [4], [20, 24]),
    }
    small = Gguf(pairs=[pair("k", 9, array(8, 1, text("v")))], infos=[Info("a", (32, 2), 2)], data=bytes(64))
    goods = [
        (put_gguf, good_gguf().encode()),
        (put_gguf, small.encode()),
        (put_safetensors, safetensors(header, bytes(24))),
    ]
    rng = np.random.default_rng(seed)
    refused = accepted = 0
    for number in range(num_files):
        put, raw = goods[number % len(goods)]
        path = put(tmp_path, mutated(raw, rng))
        start = time.process_time()
        try:
            with open_model(path) as model:
                assert_sound(model)
            accepted += 1
        except FreeholdError as error:
            refused += 1
            message = str(error)
        else:
            message = path.name
        assert "bad.gguf" in message or "model.safetensors" in message or message == tmp_path.name
        assert time.process_time() - start < LIMIT_S
    return refused, accepted


def test_mutated_files_are_refused_or_sound(tmp_path: Path) -> None:
    refused, accepted = fuzz(tmp_path, 3000, seed=1)
    assert refused > 1500
    assert accepted > 50  # else the mutations are too wild to reach the deeper checks


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 4))
def test_many_mutated_files_are_refused_or_sound(tmp_path: Path, seed: int) -> None:
    refused, accepted = fuzz(tmp_path, 30_000, seed)
    assert refused > 15_000
    assert accepted > 300
