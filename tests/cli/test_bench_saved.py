"""``freehold bench`` on saved results and the list of ``freehold experiment``: in this process, by what is printed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.unit.loadtest.made_up_results import facts, run

from freehold.cli.bench import bench
from freehold.cli.bench_datasets import DATASETS_OF
from freehold.cli.commands import app
from freehold.errors import ConfigError
from freehold.loadtest.result_file import read_result, write_result
from freehold.loadtest.workloads.catalog import DATASETS

Save = Callable[..., str]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Saves a made-up result and returns its path."""

    def saved(name: str, *, is_detailed: bool = True, **how: object) -> str:
        made = replace(run((1, 8), num=60, **how), facts=facts(label=name))
        write_result(made, tmp_path / f"{name}.json", is_detailed=is_detailed)
        return str(tmp_path / f"{name}.json")

    return saved


def printed(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def test_a_saved_result_is_shown_and_becomes_a_page(save: Save, tmp_path: Path) -> None:
    path = save("first")
    page = tmp_path / "first.html"
    out = printed("bench", "--show", path, "--report", str(page))
    found = read_result(Path(path))
    assert f"{found.points[1].output_throughput:.2f}" in out
    text = page.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert f"<td>{found.points[1].output_throughput:.2f}</td>" in text
    assert "TTFT: distribution" in text


def test_two_saved_results_are_compared(save: Save, tmp_path: Path) -> None:
    page = tmp_path / "both.html"
    out = printed("bench", "--compare", save("first"), save("second", slower=1.1), "--report", str(page))
    assert "A: first" in out
    assert "B is worse: TTFT, mean +10.0%" in out
    assert "equal requests" in out
    assert "B is worse: TTFT, mean +10.0%" in page.read_text()


def test_results_without_their_requests_say_what_is_missing(save: Save) -> None:
    out = printed("bench", "--compare", save("first", is_detailed=False), save("second"))
    assert "The first run was saved without its requests; --save-detailed keeps them" in out
    assert "output throughput" in out


@pytest.mark.parametrize("arguments", [("--show", "none.json"), ("--compare", "none.json", "none.json")])
def test_a_missing_result_is_named(arguments: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r"can't read the result none\.json"):
        printed("bench", *arguments)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--report", "none/page.html"), "--report .*no folder none; make it first"),
        (("--report", "file/page.html"), "--report .*no folder file"),
        (("--report", "."), "--report .*that is a folder"),
        (("--result-filename", "none/found.json"), "--result-filename .*no folder none; make it first"),
        (("--save-result", "--result-dir", "file"), "--result-dir can't be file"),
        (("--save-result", "--result-dir", "/proc/x"), "--result-dir can't be /proc/x.*name one that can"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_load(
    arguments: tuple[str, ...], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=why):  # it would be about the server otherwise: there is none
        printed("bench", "--base-url", "http://127.0.0.1:1", *arguments)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_trace_is_written_with_the_command_that_sends_it(tmp_path: Path) -> None:
    path = tmp_path / "an hour.jsonl"
    load = ("--dataset-name", "published", "--published", "chat", "--request-rate", "2", "--num-prompts", "5")
    told = printed("bench", *load, "--write-trace", str(path)).splitlines()
    assert told == [
        f"5 requests in {path}; send them with",
        f"freehold bench --dataset-name mooncake --dataset-path '{path}' --num-prompts 5 --trace-times",
    ]
    assert len(path.read_text().splitlines()) == 5


def test_runs_without_a_common_load_are_a_failure(save: Save, tmp_path: Path) -> None:
    write_result(run((2,)), tmp_path / "other.json", is_detailed=True)
    done = CliRunner().invoke(app, ["bench", "--compare", save("first"), str(tmp_path / "other.json")])
    assert done.exit_code == 1
    assert "Nothing to compare: the runs have no load in common." in done.output


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--num-turns", "3"), "--num-turns does nothing with --dataset-name random; it is for multi_turn"),
        (("--dataset-path", "x.jsonl"), "--dataset-path does nothing with --dataset-name random; .*sharegpt"),
        (("--dataset-name", "mooncake", "--random-input-len", "9"), "--random-input-len does nothing"),
        (("--dataset-name", "multi_turn", "--custom-output-len", "9"), "--output-len does nothing"),
        (("--dataset-name", "multi_turn", "--num-turns", "0"), "--num-turns can't be 0; it is at least 1"),
        (("--backend", "tgi"), r"--backend can't be 'tgi'; it is openai \(or vllm\)"),
        (("--backend", "vllm", "--header", "x"), "--header"),
    ],
)
def test_flags_that_would_do_nothing_or_cant_be_are_refused(arguments: tuple[str, ...], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        printed("bench", "--base-url", "http://127.0.0.1:1", *arguments)


def test_every_data_set_and_its_flags_are_known() -> None:
    assert DATASETS_OF.keys() <= {flag.name for flag in bench.params}
    assert {name for names in DATASETS_OF.values() for name in names} == set(DATASETS)


def test_experiments_are_listed_with_what_to_expect() -> None:
    out = printed("experiment", "ls")
    for name in ("cached-decoding", "warm-prefix", "kv-occupancy", "concurrency", "max-num-seqs"):
        assert f"{name}: " in out
    assert out.count("Expect") >= 4


@pytest.mark.parametrize("output", ["file", "file/deeper", "/proc/x", "/proc"])
def test_an_experiment_whose_page_cannot_be_written_is_refused_before_it(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=f"--output can't be {output}.*name one that can"):  # there is no such model
        printed("experiment", "cached-decoding", "--quick", "--model", "/none", "--output", output)


def test_an_unknown_experiment_is_named() -> None:
    with pytest.raises(ConfigError, match="no experiment 'alchemy'; there are: cached-decoding, "):
        printed("experiment", "alchemy")
