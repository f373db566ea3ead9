"""Whole runs: several points, repeats, warm-ups, seeds, what is kept, and going on after an end."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.loadtest.runs import Run, Silent, StubServer, stored

from freehold.errors import ConfigError, StateError
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


def test_what_isnt_there_cant_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run to resume"):
        RunStore(tmp_path / "run.sqlite", None)


def letter(path: Path) -> None:
    path.write_text("a letter")


def emptied(path: Path) -> None:
    path.touch()


def somebody_elses(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE run (options TEXT)")


def of_tomorrow(path: Path) -> None:
    RunStore(path, BenchOptions(base_url="http://x", loads=TWO, seed=1)).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")


def locked(path: Path) -> None:
    RunStore(path, BenchOptions(base_url="http://x", loads=TWO, seed=1)).close()
    HOLDING.append(sqlite3.connect(path))
    HOLDING[0].execute("BEGIN IMMEDIATE")


HOLDING: list[sqlite3.Connection] = []


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (letter, "not a database"),
        (emptied, "is empty"),
        (somebody_elses, "isn't Freehold's file of a load test; move it away, or give another --result-filename"),
        (of_tomorrow, "has format 99"),
        (locked, "database is locked"),
    ],
)
def test_files_that_cant_be_used_are_refused_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[Path], None], words: str
) -> None:
    monkeypatch.setattr("freehold.state_file.BUSY_TIMEOUT_S", 0.1)
    path = tmp_path / "run.sqlite"
    made(path)
    before = path.read_bytes()
    for given in (BenchOptions(base_url="http://x", loads=TWO, seed=1), None):
        with pytest.raises(StateError, match=words) as raised:
            RunStore(path, given)
        assert str(path) in str(raised.value)
    assert path.read_bytes() == before
    while HOLDING:
        HOLDING.pop().close()


def test_a_full_disk_is_told_after_the_result_and_leaves_no_gaps(stub: StubServer, tmp_path: Path) -> None:
    """What came after the first thing that couldn't be written isn't written either, even if there is room again."""
    path = tmp_path / "run.sqlite"
    options = BenchOptions(
        base_url=stub.url, loads=TWO[:1], num_prompts=40, seed=1, fields={"stub": {"gap_s": 0.002}},
        dataset=DatasetOptions(random_input_len=8, random_output_len=4),
    )  # fmt: skip
    store = RunStore(path, options)

    class Filling(Silent):
        num = 0

        def record(self, record: RequestRecord) -> None:
            self.num += 1
            if self.num in {5, 25}:
                pages = 1 if self.num == 5 else 1 << 20
                store._connection.execute(f"PRAGMA max_page_count = {pages}")

    result = asyncio.run(run_bench(options, store, Surroundings(tmp_path), Filling()))
    assert result.points[0].completed == 40
    with pytest.raises(StateError, match=r"run\.sqlite can't be used: database or disk is full"):
        store.close()
    assert stored_count(path) < 25
    again = RunStore(path, None)
    assert again.measurement(0, 0) is None, "it is measured anew"
    again.close()


def test_two_processes_cant_have_a_run_open(stub: StubServer, tmp_path: Path) -> None:
    store = RunStore(tmp_path / "run.sqlite", measure_options(stub))
    with pytest.raises(ConfigError, match="another process"):
        RunStore(tmp_path / "run.sqlite", None)
    store.close()
