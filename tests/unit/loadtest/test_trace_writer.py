"""A synthetic load as a trace: what is read back is what would have been asked."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from freehold.errors import ConfigError
from freehold.loadtest.arrivals import start_times
from freehold.loadtest.options import BenchOptions, DatasetOptions
from freehold.loadtest.results import Load
from freehold.loadtest.workloads.base import Conversation
from freehold.loadtest.workloads.catalog import open_workload
from freehold.loadtest.workloads.filler import GUESSED
from freehold.loadtest.workloads.served import Served
from freehold.loadtest.workloads.trace import TraceWorkload
from freehold.loadtest.workloads.trace_files import JsonTrace, Traced
from freehold.loadtest.workloads.trace_writer import ANSWER_TOKEN_S, write_trace

NUM = 12
RATE = Load(kind="open", request_rate=2.0)


def run(load: Load = RATE, **dataset: Any) -> BenchOptions:
    return BenchOptions(base_url="http://x", loads=[load], num_prompts=NUM, seed=1, dataset=DatasetOptions(**dataset))


def written(path: Path, options: BenchOptions, seed: int = 5) -> list[Traced]:
    num = write_trace(options, seed, path)
    found = list(JsonTrace(path).requests())
    assert len(found) == num
    return found


def num_alike(a: Any, b: Any) -> int:
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def asked(options: BenchOptions) -> list[Conversation]:
    """What the workload itself makes: a word is a token."""
    return list(open_workload(options.dataset, Served("text")).conversations(NUM, 5))


def words(conversation: Conversation, place: int) -> list[str]:
    """Of a turn's whole prompt; answers are words that are nobody else's."""
    found: list[str] = []
    for number, turn in enumerate(conversation.turns[: place + 1]):
        found += str(turn.prompt).split()
        if number < place:
            found += [f"answer {id(conversation)} {number} {at}" for at in range(turn.output_len or 0)]
    return found


@pytest.mark.parametrize("name", ["chat", "code", "long-chat"])
def test_fitted_lengths_and_arrivals_come_back(tmp_path: Path, name: str) -> None:
    options = run(name="published", published=name)
    found = written(tmp_path / "trace.jsonl", options)
    lengths = [(each.turns[0].input_len, each.turns[0].output_len) for each in asked(options)]
    assert [(each.input_len, each.output_len) for each in found] == lengths
    assert [each.start_s for each in found] == pytest.approx(start_times(RATE, NUM, 5), abs=0.0006)
    blocks = [block for each in found for block in each.blocks]
    assert len(set(blocks)) == len(blocks), "nothing is shared"


@pytest.mark.parametrize(
    "dataset",
    [
        {"name": "multi_turn", "num_turns": 4, "random_input_len": 300, "random_output_len": 200, "opening_len": 1200},
        {"name": "prefix_repetition", "prefix_len": 1100, "suffix_len": 500, "num_prefixes": 3},
        {"name": "agent", "opening_len": 700, "length_scale": 0.2},
    ],
    ids=lambda dataset: dataset["name"],
)
def test_prompts_begin_alike_where_the_workloads_do(tmp_path: Path, dataset: dict[str, Any]) -> None:
    options = run(**dataset)
    found = written(tmp_path / "trace.jsonl", options)
    prompts = [words(each, place) for each in asked(options) for place in range(len(each.turns))]
    assert sorted(len(prompt) for prompt in prompts) == sorted(each.input_len for each in found)
    # By length and company: which requests share how many whole blocks, whatever their order.
    shared = sorted(num_alike(a, b) // 512 for a, b in itertools.combinations(prompts, 2))
    assert sorted(num_alike(a.blocks, b.blocks) for a, b in itertools.combinations(found, 2)) == shared
    assert max(shared) >= 2


def test_turns_follow_a_pause_after_the_answer(tmp_path: Path) -> None:
    options = run(name="multi_turn", num_turns=3, pause_s=2.0, random_output_len=100)
    found = written(tmp_path / "trace.jsonl", options)
    starts = start_times(RATE, NUM, 5)
    meant = []
    for start_s, conversation in zip(starts, asked(options), strict=True):
        pauses_s = itertools.accumulate(turn.pause_s for turn in conversation.turns)
        meant += [start_s + pause_s + place * 100 * ANSWER_TOKEN_S for place, pause_s in enumerate(pauses_s)]
    assert [each.start_s for each in found] == pytest.approx(sorted(meant), abs=0.0006)


def test_what_is_written_is_asked_again(tmp_path: Path) -> None:
    """Read as a workload: the same lengths, and prompts that begin alike for as many tokens."""
    options = run(name="prefix_repetition", prefix_len=1024, suffix_len=100, num_prefixes=2)
    written(tmp_path / "trace.jsonl", options)
    again = TraceWorkload("mooncake", JsonTrace(tmp_path / "trace.jsonl"), GUESSED).conversations(NUM, 1)
    prompts = [str(each.turns[0].prompt).split() for each in again]
    originals = [words(each, 0) for each in asked(options)]
    assert [len(prompt) for prompt in prompts] == [1124] * NUM
    for (a, b), (c, d) in zip(itertools.combinations(prompts, 2), itertools.combinations(originals, 2), strict=True):
        assert num_alike(a, b) // 512 == num_alike(c, d) // 512


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (run(name="mooncake"), "that is a file already"),
        (run(Load(kind="closed", concurrency=1)), "--request-rate"),
        (run(Load(kind="trace")), "--request-rate"),
    ],
)
def test_what_has_no_times_or_is_a_file_is_refused(tmp_path: Path, options: BenchOptions, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        write_trace(options, 5, tmp_path / "trace.jsonl")
    assert not (tmp_path / "trace.jsonl").exists()
