"""The comparison: its pairs, its rows, and a whole run on a small model."""

import json
import sys
from pathlib import Path

import compare
import pytest
from engine_worker import Worker
from model_files import model_file
from offline_rows import ROWS
from pairs import Spread, in_turns, ratios

from freehold.files.tensors import DType
from freehold.synth import PRESETS, write_checkpoint

BENCHMARKS = Path(compare.__file__).parent


@pytest.fixture(scope="module")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    write_checkpoint(PRESETS["tiny"], path, format="gguf", dtype=DType.Q4_0, seed=0)
    return path


def test_turns_alternate_and_the_first_only_warms_up() -> None:
    calls: list[tuple[str, int]] = []

    def measure(name: str, turn: int) -> float:
        calls.append((name, turn))
        return 10.0 * turn + (name == "b")

    found = in_turns({name: lambda turn, name=name: measure(name, turn) for name in ("a", "b")}, 4)
    assert [name for name, turn in calls if turn] == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert found == {"a": [10, 20, 30, 40], "b": [11, 21, 31, 41]}
    assert ratios(found["b"], found["a"])[0] == pytest.approx(1.1)


def test_a_spread_is_median_and_ends() -> None:
    assert Spread.of([3.0, 1.0, 2.0, 9.0]) == Spread(2.5, 1.0, 9.0)


@pytest.mark.parametrize("name", ROWS)
def test_prompts_are_distinct_within_a_run_and_new_for_each_prefill(name: str) -> None:
    row = ROWS[name]
    first, again = row.prompts(1, 1000), row.prompts(2, 1000)
    assert [len(prompt) for prompt in first] == [row.num_prompt] * row.num_requests
    assert len({tuple(prompt) for prompt in first}) == row.num_requests
    assert (first == again) == (row.phase == "decode")
    assert first == row.prompts(1, 1000)


def test_rates_count_the_phase() -> None:
    measured = {"prefill_s": 2.0, "decode_s": 4.0, "num_decoded": 800}
    assert ROWS["prefill512"].rate(measured) == 256
    assert ROWS["batch8"].rate(measured) == 200


def test_a_worker_answers_as_often_as_asked(tiny_path: Path) -> None:
    command = [sys.executable, BENCHMARKS / "engine_freehold.py", tiny_path, "--threads", "1", "--kv-cache", "64m"]
    with Worker(command) as worker:
        assert worker.description["vocab_size"] == PRESETS["tiny"].vocab_size
        for num_requests in (1, 3):
            found = worker.run([[5 + index] * 40 for index in range(num_requests)], 9)
            # While all grow: at most what the others get beyond their first token until one is complete.
            assert 8 <= found["num_decoded"] <= 8 * num_requests
            assert found["prefill_s"] > 0
            assert found["decode_s"] > 0


def test_a_whole_run(tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "results.json"
    arguments = ["--models", str(tiny_path), "--rows", "batch8", "--pairs", "2", "--kv-cache", "64m"]
    monkeypatch.setattr("sys.argv", ["compare.py", *arguments, "--json", str(out)])
    compare.main()
    (model,) = json.loads(out.read_text())["models"]
    assert [row["row"]["name"] for row in model["rows"]] == ["batch8"]
    for row in model["rows"]:
        freehold = row["engines"]["freehold"]
        assert len(freehold["rates"]) == 2
        assert freehold["lowest"] <= freehold["median"] <= freehold["highest"]
        assert freehold["shares"] == pytest.approx(ratios(freehold["rates"], row["roofs"]))
        assert len(set(row["dram_bytes_per_s"])) == 2
        assert 0 < freehold["share"] < 1


@pytest.mark.parametrize("name", ["q9_0", "qwen9:q4_0", "tiny:q9_0", "no/such.gguf"])
def test_unknown_models_are_refused(name: str) -> None:
    with pytest.raises(SystemExit, match=name.replace("/", ".")):
        model_file(name, None)


def test_other_types_need_llama_cpp(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, smollm2_path: Path) -> None:
    monkeypatch.setattr("freehold.resolve.home_directory", lambda: tmp_path)
    monkeypatch.setattr("freehold.files.store.locate", lambda _name, _home: smollm2_path)
    with pytest.raises(SystemExit, match="--llamacpp"):
        model_file("q8_0", None)


def test_unknown_rows_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        compare.parse(["--rows", "decode128,decode7"])
    assert "decode7" in capsys.readouterr().err
