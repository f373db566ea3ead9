"""Whole runs: several points, repeats, warm-ups, seeds, what is kept, and going on after an end."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.loadtest.runs import Run, Silent, StubServer, stored

from freehold.errors import ConfigError
from freehold.loadtest.bench import Surroundings, run_bench
from freehold.loadtest.options import BenchOptions, DatasetOptions
from freehold.loadtest.records import RequestRecord
from freehold.loadtest.results import Load, RunResult
from freehold.loadtest.store import RunStore

Against = Callable[..., Run]
TWO = [Load(kind="closed", concurrency=each) for each in (1, 4)]


def prompts(run: Run, prefix: str = "bench-") -> list[tuple[int, ...]]:
    return [tuple(truth.body["prompt"]) for key, truth in run.truths.items() if key.startswith(prefix)]


def test_no_prompt_is_sent_twice(against: Against) -> None:
    sent = prompts(against(loads=TWO, repeats=2, num_prompts=5, num_warmups=2), "")
    assert len(sent) == 2 * 2 * (5 + 2)
    assert len(set(sent)) == len(sent)
    other = prompts(against(loads=TWO, repeats=2, num_prompts=5, seed=2), "")
    assert not set(sent) & set(other)


def test_a_seed_fixes_the_prompts(against: Against) -> None:
    first, again = (against(loads=TWO, num_prompts=3, seed=9) for _ in range(2))
    assert sorted(prompts(first)) == sorted(prompts(again))


def test_a_warm_cache_is_one_that_has_seen_every_prompt_once(against: Against) -> None:
    run = against({"cached": 32}, loads=TWO, num_prompts=5, warm_cache=True)
    before, first, second = (prompts(run, prefix) for prefix in ("warm-up", "bench-1-0", "bench-1-1"))
    assert set(before) == set(first) == set(second)
    assert len(before) == 5
    assert all(not {"prefix_cache_hits"} & {each.code for each in point.warnings} for point in run.result.points)


def test_warm_ups_dont_count(against: Against) -> None:
    run = against([{"first_s": 0.3}, {"first_s": 0.3}, *[{}] * 9], num_warmups=2, num_prompts=9)
    assert run.point.completed == 9
    assert run.point.latencies["ttft"].median < 250
    assert run.point.num_warmups == 2
    assert sum(key.startswith("warm-up") for key in run.truths) == 2


def test_repeats_are_pooled_and_told_one_by_one(against: Against) -> None:
    run = against(repeats=3, num_prompts=4, lengths=(4, 2))
    assert run.point.completed == 12
    assert [each.completed for each in run.point.repeats] == [4, 4, 4]
    assert len({each.seed for each in run.point.repeats}) == 3
    assert "output_throughput" in run.point.intervals
    low, high = run.point.intervals["p50_e2el_ms"]
    assert low <= run.point.latencies["e2el"].median <= high


def test_prompts_of_one_measurement_number_what_was_asked(against: Against) -> None:
    assert against(num_prompts=None, concurrency=30, lengths=(2, 1)).point.completed == 120
    assert BenchOptions(base_url="http://x", loads=TWO, seed=1).prompts_of(TWO[1]) == 100


def test_every_request_is_in_the_file_as_it_ends(stub: StubServer, tmp_path: Path) -> None:
    """Seen from another connection while the run goes on."""
    seen: list[int] = []
    path = tmp_path / "run.sqlite"

    class Watcher(Silent):
        def record(self, record: RequestRecord) -> None:
            seen.append(stored_count(path))

    measure(stub, path, Watcher(), fields={"stub": {"first_s": 0.05}})
    assert seen[-1] >= 8, "all but the latest are there"


def measure(stub: StubServer, path: Path, watcher: Silent, **options: Any) -> RunResult:
    chosen = BenchOptions(**{
        "base_url": stub.url, "loads": TWO, "num_prompts": 10, "seed": 1, "fields": {"stub": {"gap_s": 0.002}},
        "dataset": DatasetOptions(random_input_len=8, random_output_len=4), **options,
    })  # fmt: skip
    store = RunStore(path, None if path.exists() else chosen)
    try:
        return asyncio.run(interruptible(store, watcher))
    finally:
        store.close()


async def interruptible(store: RunStore, watcher: Silent) -> RunResult:
    """As Ctrl-C does, a watcher may cancel the run."""
    task = asyncio.current_task()
    assert task is not None
    if isinstance(watcher, Interrupting):
        watcher.task = task
    return await run_bench(store.options, store, Surroundings(store.path.parent), watcher)


class Interrupting(Silent):
    """Interrupts the run once so many requests ended."""

    task: asyncio.Task[Any]

    def __init__(self, after: int) -> None:
        self._left = after

    def record(self, record: RequestRecord) -> None:
        self._left -= 1
        if self._left == 0:
            self.task.cancel()


@pytest.mark.parametrize(("after", "num_points", "completed"), [(4, 1, 4), (14, 2, 4)])
def test_an_interrupted_run_keeps_what_there_is_and_goes_on(
    stub: StubServer, tmp_path: Path, after: int, num_points: int, completed: int
) -> None:
    path = tmp_path / "run.sqlite"
    stub.truth()
    cut = measure(stub, path, Interrupting(after))
    assert len(cut.points) == num_points
    assert completed <= cut.points[-1].completed <= completed + 4
    assert [each.is_complete for each in cut.points[:-1]] == [True] * (num_points - 1)
    sent = asked(stub)
    whole = measure(stub, path, Silent())
    assert [(each.completed, each.is_complete) for each in whole.points] == [(10, True), (10, True)]
    again = asked(stub)
    assert len(again) == (20 if after < 10 else 10), "what was complete isn't measured again"
    assert not sent & again, "the server may have cached them"
    anew = [{each.code for each in point.warnings} >= {"measured_anew"} for point in whole.points]
    assert anew == ([True, False] if after < 10 else [False, True])
    if after > 10:
        assert whole.points[0] == cut.points[0], "and is the same as before"
    assert len(stored(path, 0, 0).records) == 10


def asked(stub: StubServer) -> set[tuple[int, ...]]:
    """Prompts since the last look, but for warm-ups."""
    return {tuple(truth.body["prompt"]) for key, truth in stub.truth().items() if key.startswith("bench-")}


def test_an_interruption_before_anything_ended_is_told(stub: StubServer, tmp_path: Path) -> None:
    class AtOnce(Interrupting):
        def begin(self, load: Load, repeat: int, num_requests: int) -> None:
            self.task.get_loop().call_later(0.05, self.task.cancel)

    with pytest.raises(Exception, match="nothing to report"):
        measure(stub, tmp_path / "run.sqlite", AtOnce(0), fields={"stub": {"first_s": 5.0}}, num_warmups=0)


def test_a_file_of_a_run_is_replaced_only_once_it_is_finished(stub: StubServer, tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    options = measure_options(stub)
    measure(stub, path, Interrupting(14))
    with pytest.raises(ConfigError, match="--resume"):
        RunStore(path, options)
    measure(stub, path, Silent())
    RunStore(path, options).close()
    assert stored_count(path) == 0
    RunStore(path, options).close()  # one that has measured nothing is in nobody's way


def measure_options(stub: StubServer) -> BenchOptions:
    return BenchOptions(base_url=stub.url, loads=TWO, seed=1)


def stored_count(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        count: int = connection.execute("SELECT count(*) FROM request").fetchone()[0]
    return count


def test_files_that_are_no_runs_are_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    with pytest.raises(ConfigError, match="no run"):
        RunStore(path, None)
    path.write_text("a letter")
    options = BenchOptions(base_url="http://x", loads=TWO, seed=1)
    for given in (options, None):
        with pytest.raises(ConfigError, match=r"run\.sqlite"):
            RunStore(path, given)
    assert path.read_text() == "a letter"


def test_two_processes_cant_have_a_run_open(stub: StubServer, tmp_path: Path) -> None:
    store = RunStore(tmp_path / "run.sqlite", measure_options(stub))
    with pytest.raises(ConfigError, match="another process"):
        RunStore(tmp_path / "run.sqlite", None)
    store.close()
