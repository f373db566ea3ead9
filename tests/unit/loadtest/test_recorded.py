"""A recording as load: its prompts and parameters, or, without them, its lengths, times and common beginnings."""

import itertools

import pytest
from tests.unit.observe.recordings import begin, finish, recorder, tokens
from tests.unit.observe.recordings import request as made_up
from word_tokenizer import Words

from freehold.errors import ConfigError, RecordingError
from freehold.loadtest.options import DatasetOptions
from freehold.loadtest.workloads.catalog import open_workload
from freehold.loadtest.workloads.recorded import RecordingTrace
from freehold.loadtest.workloads.served import Served
from freehold.protocol import Sampling

WORDS = Words()
COMPLETIONS = Served("ids", 8000, WORDS.tokenize)
LONG = tuple(range(600))
PROMPTS = {"one": LONG, "two": (*LONG[:550], 9, 9), "three": (7,) * 20}
"""The first two have their first block of 512 in common."""


@pytest.fixture(params=["full", "metadata"])
def recorded(tmp_path, request):
    """A folder with three requests, and its detail."""
    record(tmp_path / "ring", request.param)
    return tmp_path / "ring", request.param


def record(folder, detail, *, is_answered=True):
    with recorder(folder) as writing:
        for name, prompt in PROMPTS.items():
            generate = made_up(name, prompt)
            take = begin(writing, generate, detail)
            if is_answered:
                take.see(tokens(generate, 1, 2, 3, 4))
            take.see(finish(generate, 4 if is_answered else 0))


def opened(folder, served=COMPLETIONS, **options):
    return open_workload(DatasetOptions(name="recording", path=str(folder), **options), served)


def test_recorded_prompts_are_asked_again_with_their_parameters(tmp_path):
    record(tmp_path, "full")
    load = opened(tmp_path)
    made = load.conversations(10, 1)
    assert [each.turns[0].prompt for each in made] == list(PROMPTS.values())
    assert {each.turns[0].output_len for each in made} == {4}
    assert made[0].turns[0].fields == {"temperature": Sampling().temperature, "seed": 7}
    assert made[0].start_s == 0.0
    assert all(before.start_s <= after.start_s for before, after in itertools.pairwise(made))
    assert len(load.conversations(2, 1)) == 2


def test_without_prompts_lengths_and_common_beginnings_are_kept(recorded):
    folder, detail = recorded
    served = COMPLETIONS if detail == "metadata" else Served("chat", 8000, WORDS.tokenize, WORDS.count_chat)
    made = opened(folder, served).conversations(10, 1)
    assert [each.turns[0].input_len for each in made] == [len(prompt) for prompt in PROMPTS.values()]
    one, two, three = (
        [*each.turns[0].prompt] if detail == "metadata" else each.turns[0].prompt.split() for each in made
    )
    assert one[:512] == two[:512]
    assert one[512:518] != two[512:518]
    assert three[:3] != one[:3]


def test_a_recording_with_other_lengths_is_a_trace(tmp_path):
    record(tmp_path, "full")
    made = opened(tmp_path, trace_length_scale=0.5).conversations(10, 1)
    assert [each.turns[0].input_len for each in made] == [300, 276, 10]
    assert {each.turns[0].output_len for each in made} == {2}


def test_blocks_of_different_runs_of_a_server_are_different(tmp_path):
    record(tmp_path, "metadata")
    record(tmp_path, "metadata")
    names = [each.blocks for each in RecordingTrace(tmp_path).requests()]
    assert len(names) == 6
    assert [{name >> 64 for name in blocks} for blocks in names] == [{1}] * 3 + [{2}] * 3


def test_requests_that_were_never_answered_are_left_out(tmp_path):
    record(tmp_path, "full", is_answered=False)
    with pytest.raises(ConfigError, match="no request that was answered"):
        opened(tmp_path).conversations(10, 1)


def test_a_speed_that_cannot_be_is_refused(tmp_path):
    record(tmp_path, "full")
    with pytest.raises(ConfigError, match="--trace-speed can't be 0"):
        opened(tmp_path, trace_speed=0.0)


def test_a_folder_without_recording(tmp_path):
    with pytest.raises(RecordingError, match="there is no recording"):
        opened(tmp_path)
