"""The workshop's experiments, on a model so small that they only show that they count rightly."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests.loadtest.runs import StubServer

from freehold.files.tensors import DType
from freehold.loadtest import validity
from freehold.loadtest.experiments.base import Experiment, Outcome, Setting
from freehold.loadtest.experiments.catalog import EXPERIMENTS, measured, outcome_page, outcome_text, write_outcome
from freehold.loadtest.experiments.served_model import load_test
from freehold.loadtest.options import BenchOptions
from freehold.loadtest.report.html import Table
from freehold.loadtest.report.plot import Line, Plot
from freehold.loadtest.report.scale import Axis
from freehold.loadtest.results import Load
from freehold.synth import PRESETS, write_checkpoint

Measure = Callable[[str], Outcome]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_checkpoint(PRESETS["tiny"], path, format="gguf", dtype=DType.F32, seed=1)
    return path


@pytest.fixture(scope="module")
def measure(tiny: Path) -> Measure:
    return lambda name: EXPERIMENTS[name].run(Setting(str(tiny), is_quick=True, threads=1))


def column(table: Table, name: str) -> list[object]:
    place = list(table.header).index(name)
    return [row[place] for row in table.rows]


@pytest.mark.slow
def test_naive_decoding_really_computes_everything_again(measure: Measure) -> None:
    outcome = measure("cached-decoding")
    (table,) = outcome.tables
    num_prompt, num_output = 8, 6
    naive = sum(num_prompt + number for number in range(num_output))
    assert column(table, "prefill tokens computed") == [num_prompt, naive]
    assert column(table, "decode tokens computed") == [num_output - 1, 0]
    assert column(table, "ids given") == [num_output, num_output]
    ((_, plot),) = outcome.plots
    assert [len(line.points) for line in plot.series if isinstance(line, Line)] == [num_output, num_output]
    assert outcome.found[0] == "Both ways gave the same tokens."


@pytest.mark.slow
def test_a_warm_prefix_is_reused_and_a_cold_one_is_not(measure: Measure) -> None:
    (table,) = measure("warm-prefix").tables
    assert column(table, "tokens reused cold") == [0, 0]
    assert column(table, "reused warm") == [16, 48]
    assert column(table, "prompt tokens") == [32, 64]


@pytest.mark.slow
def test_blocks_are_held_while_requests_run_and_kept_when_they_ended(measure: Measure) -> None:
    (table,) = measure("kv-occupancy").tables
    begun, most, last = (dict(zip(table.header, row, strict=True)) for row in table.rows)
    assert most["held"] > begun["held"]
    assert most["requests running"] >= 1
    assert last["requests running"] == last["held"] == 0
    assert last["cached, held by nobody"] >= most["held"]


@pytest.mark.slow
def test_each_level_of_concurrency_asks_other_prompts(measure: Measure) -> None:
    outcome = measure("concurrency")
    (table,) = outcome.tables
    assert column(table, "load") == ["1 at a time", "2 at a time", "4 at a time"]
    assert column(table, "requests") == [4, 4, 8]
    hits = [float(str(cell).rstrip("%")) for cell in column(table, "cache hits")]
    assert max(hits) < 20
    assert {name for name, _ in outcome.plots} == {"throughput", "latency"}


@pytest.mark.slow
@pytest.mark.parametrize("is_late", [False, True])
def test_both_numbers_of_places_are_measured_and_compared_request_by_request(
    measure: Measure, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the load tester is late: then its figures are no base for a verdict, and that is said."""
    if is_late:
        monkeypatch.setattr(validity, "MOST_LAG_MS", -1.0)
    else:
        monkeypatch.setattr(validity, "_faults", lambda *_: iter(()))  # this machine may be as busy as it likes
    outcome = measure("max-num-seqs")
    assert any("Not comparable" in sentence for sentence in outcome.found) is is_late
    assert any(sentence.startswith("The first run is invalid") for sentence in outcome.found) is is_late
    (table,) = outcome.tables
    assert column(table, "--max-num-seqs") == ["1", "4"]
    assert all(isinstance(cell, float) and cell > 0 for cell in column(table, "TTFT p50"))
    assert outcome.found[0] == "A has 1 places, B 4."
    assert any("TTFT, mean" in sentence for sentence in outcome.found)


@pytest.mark.slow
def test_the_command_prints_and_writes_what_was_found(tiny: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "freehold", "experiment", "cached-decoding", "--quick", "--model", str(tiny)]
    done = subprocess.run(
        [*command, "--output", str(tmp_path / "out")],
        capture_output=True,
        check=False,
        text=True,
        env=os.environ | {"PYTHONPATH": "src"},
    )
    assert done.returncode == 0, done.stderr
    assert "Both ways gave the same tokens." in done.stdout
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "cached-decoding-time-per-token.svg",
        "cached-decoding.html",
    ]


def made_up() -> tuple[Experiment, Outcome]:
    table = Table("Times", ("way", "seconds"), [["fast", 1.25], ["slow", 10.0]])
    plot = Plot("Curve", "It rises.", Axis("x"), Axis("y"), [Line("a", [(0.0, 1.0), (1.0, 2.5)])])
    experiment = Experiment("made-up", "Made up", "Expect <nothing>.", lambda _setting: outcome)
    outcome = Outcome(["Slow was slower."], [table], [("curve", plot)])
    return experiment, outcome


def test_what_was_found_is_printed_and_written(tmp_path: Path) -> None:
    experiment, outcome = made_up()
    setting = Setting("smollm2")
    assert outcome_text(outcome).splitlines() == [
        "Times:", "way   seconds", "fast     1.25", "slow    10.00", "", "Slow was slower.",
    ]  # fmt: skip
    page, picture = write_outcome(experiment, setting, outcome, tmp_path / "deep" / "out")
    assert page.read_text() == outcome_page(experiment, setting, outcome)
    for part in ("Expect &lt;nothing&gt;.", "Slow was slower.", "1.25", "Model: smollm2", "<svg"):
        assert part in page.read_text()
    drawn = ElementTree.fromstring(picture.read_text())
    assert drawn.tag.endswith("svg")
    assert "prefers-color-scheme" in picture.read_text()


@pytest.mark.parametrize("is_quick", [False, True])
def test_quick_figures_are_said_to_tell_nothing(is_quick: bool) -> None:
    experiment, outcome = made_up()
    warned = ["--quick is too short for these figures to tell anything."] if is_quick else []
    assert measured(experiment, Setting("smollm2", is_quick=is_quick)).found == [*outcome.found, *warned]


@pytest.mark.parametrize("after_s", [0.0, 0.6], ids=["before any request ended", "after some"])
def test_ctrl_c_ends_an_experiment_as_it_ends_other_commands(stub: StubServer, after_s: float) -> None:
    def interrupt(_told: str) -> None:
        asyncio.get_running_loop().call_later(after_s, os.kill, os.getpid(), signal.SIGINT)

    loads = [Load(kind="closed", concurrency=1)]
    fields = {"stub": {"first_s": 0.01}}
    options = BenchOptions(base_url=stub.url, loads=loads, seed=1, num_prompts=2000, num_warmups=0, fields=fields)
    with pytest.raises(KeyboardInterrupt):
        load_test(options, Setting("stub", tell=interrupt))


def test_each_experiment_says_what_to_expect() -> None:
    assert list(EXPERIMENTS) == ["cached-decoding", "warm-prefix", "kv-occupancy", "concurrency", "max-num-seqs"]
    for name, experiment in EXPERIMENTS.items():
        assert experiment.name == name
        assert len(experiment.expect.split()) > 50
