"""Traces become requests at their times, with their lengths, that begin alike where the trace's did."""

import json
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from word_tokenizer import Words

from freehold.errors import ConfigError
from freehold.loadtest.workloads.filler import learn
from freehold.loadtest.workloads.trace import Fit, TraceWorkload
from freehold.loadtest.workloads.trace_files import AzureTrace, BurstTrace, JsonTrace

BLOCK = 16
FILLER = learn(Words().tokenize)


class Lines:
    """A trace that is already read."""

    path = "trace.jsonl"

    def __init__(self, traced):
        self._traced = traced

    def requests(self):
        return iter(self._traced)


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@st.composite
def prefix_trees(draw):
    """Rows as Mooncake has them: a prompt's blocks are named after all that comes up to their end."""
    rows, names = [], {}
    for number in range(draw(st.integers(1, 12))):
        contents = draw(st.lists(st.integers(0, 2), min_size=1, max_size=6))
        length = len(contents) * BLOCK - draw(st.integers(0, BLOCK - 1))
        keys = [
            (tuple(contents[: end + 1]), length if end == len(contents) - 1 else None) for end in range(len(contents))
        ]
        hash_ids = [names.setdefault(key, len(names)) for key in keys]
        rows.append({"timestamp": number * 250, "input_length": length, "output_length": 3, "hash_ids": hash_ids})
    return rows


def common(a, b):
    """How many items two sequences begin alike with."""
    return next((index for index, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@settings(max_examples=60, deadline=None)
@given(scale=st.sampled_from([1.0, 0.5, 0.25]), rows=prefix_trees(), seed=st.integers(0, 2**32))
def test_prompts_begin_alike_exactly_where_the_trace_does(tmp_path_factory, scale, rows, seed):
    path = written(tmp_path_factory.getbasetemp() / "tree.jsonl", rows)
    load = TraceWorkload("mooncake", JsonTrace(path, BLOCK), FILLER, Fit(length_scale=scale), BLOCK)
    made = load.conversations(100, seed)
    prompts = [each.turns[0].prompt.split() for each in made]
    block_len = round(BLOCK * scale)
    for row, one in zip(rows, prompts, strict=True):
        num_full = len(row["hash_ids"]) - 1
        rest = (row["input_length"] - num_full * BLOCK) * scale
        assert len(one) == num_full * block_len + max(round(rest), 1)
    for row, one in zip(rows, prompts, strict=True):
        for other_row, other in zip(rows, prompts, strict=True):
            shared = common(row["hash_ids"], other_row["hash_ids"])
            reused = common(one, other)
            assert reused >= min(shared * block_len, len(one), len(other))
            if shared < min(len(row["hash_ids"]), len(other_row["hash_ids"])) and scale == 1.0:
                assert reused < shared * BLOCK + 6  # the next block is another one: six equal words are no chance


def test_another_seed_makes_other_words_of_the_same_trace(tmp_path):
    path = written(
        tmp_path / "t.jsonl", [{"timestamp": 0, "input_length": 40, "output_length": 2, "hash_ids": [0, 1, 2]}]
    )
    load = TraceWorkload("mooncake", JsonTrace(path, BLOCK), FILLER, Fit(), BLOCK)
    first, again, other = (load.conversations(1, seed)[0].turns[0].prompt for seed in (1, 1, 2))
    assert first == again
    assert common(first.split(), other.split()) < 4


@settings(max_examples=40, deadline=None)
@given(
    gaps=st.lists(st.integers(0, 10_000), min_size=1, max_size=30),
    speed=st.sampled_from([0.5, 1.0, 4.0]),
    begin=st.integers(0, 10**9),
)
def test_arrivals_are_the_traces_from_its_first_request_on(tmp_path_factory, gaps, speed, begin):
    times = [begin + sum(gaps[:end]) for end in range(1, len(gaps) + 1)]
    rows = [{"timestamp": time, "input_length": 5, "output_length": 1} for time in times]
    path = written(tmp_path_factory.getbasetemp() / "times.jsonl", rows)
    made = TraceWorkload("mooncake", JsonTrace(path), FILLER, Fit(speed=speed)).conversations(100, 1)
    expected = [(time - times[0]) / 1000 / speed for time in times]
    assert [each.start_s for each in made] == pytest.approx(expected, abs=1e-5)


def test_lengths_shrink_until_the_longest_request_fits(tmp_path):
    rows = [
        {"timestamp": 0, "input_length": 9000, "output_length": 1000},
        {"timestamp": 9, "input_length": 900, "output_length": 100},
    ]
    path = written(tmp_path / "long.jsonl", rows)
    long, short = TraceWorkload("mooncake", JsonTrace(path), FILLER, Fit(max_model_len=501)).conversations(9, 1)
    assert (long.turns[0].input_len, long.turns[0].output_len) == (450, 50)
    assert (short.turns[0].input_len, short.turns[0].output_len) == (45, 5)
    with pytest.raises(ConfigError, match=r"10000 tokens; times 1 .*context of 501: --trace-length-scale can be 0.05"):
        TraceWorkload("mooncake", JsonTrace(path), FILLER, Fit(501, length_scale=1.0)).conversations(9, 1)


def test_what_a_template_adds_is_part_of_the_length(tmp_path):
    tokenizer = Words()
    chats = learn(tokenizer.tokenize, "chat", tokenizer.count_chat)
    rows = [{"timestamp": 0, "input_length": 40, "output_length": 2, "hash_ids": [0, 1, 2]}]
    path = written(tmp_path / "t.jsonl", rows)
    (made,) = TraceWorkload("mooncake", JsonTrace(path, BLOCK), chats, Fit(), BLOCK).conversations(1, 1)
    assert tokenizer.count_chat([{"role": "user", "content": made.turns[0].prompt}]) == 40 == made.turns[0].input_len


def test_a_timed_trace_may_name_its_columns_otherwise(tmp_path):
    path = written(tmp_path / "t.jsonl", [{"at": 2, "in": 20, "out": 3, "ids": [4, 5]}, {"at": 5, "in": 7, "out": 1}])
    columns = {"timestamp": "at", "input_length": "in", "output_length": "out", "hash_ids": "ids"}
    found = list(JsonTrace(path, 16, unit_s=1.0, columns=columns).requests())
    assert [(each.start_s, each.input_len, each.output_len, each.blocks) for each in found] == [
        (2.0, 20, 3, (4, 5)),
        (5.0, 7, 1, ()),
    ]


def test_azure_rows(tmp_path):
    path = tmp_path / "azure.csv"
    path.write_bytes(
        b"\xef\xbb\xbfTIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        b"2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,396,109\r\n"
    )
    found = list(AzureTrace(path).requests())
    assert [(each.input_len, each.output_len) for each in found] == [(374, 44), (396, 109)]
    began = datetime.fromisoformat("2023-11-16T18:15:46.680590+00:00")
    assert found[0].start_s == began.timestamp()
    assert found[1].start_s - found[0].start_s == pytest.approx(timedelta(seconds=4.314579).total_seconds())


def test_burstgpt_rows_that_failed_are_left_out(tmp_path):
    path = tmp_path / "burst.csv"
    path.write_text(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,Conversation log\n118,GPT-4,417,276,693,API log"
    )
    found = [(each.start_s, each.input_len, each.output_len) for each in BurstTrace(path).requests()]
    assert found == [(5.0, 472, 18), (118.0, 417, 276)]


GOOD = {"timestamp": 0, "input_length": 20, "output_length": 5, "hash_ids": [0]}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", r"line 2 is no JSON: .*each line must be an object"),
        ("[1]", r"line 2 is a list; it must be an object"),
        (json.dumps(GOOD | {"timestamp": "noon"}), r"line 2: timestamp is 'noon'; it must be a number"),
        (json.dumps(GOOD | {"timestamp": -1}), r"line 2: timestamp is -1; it must be a number, at least 0"),
        (json.dumps(GOOD | {"input_length": 0}), r"line 2: input_length is 0; it must be a whole number, at least 1"),
        (json.dumps(GOOD | {"input_length": 2.5}), r"line 2: input_length is 2.5; it must be a whole number"),
        (json.dumps(GOOD | {"output_length": True}), r"line 2: output_length is True; it must be a number"),
        (json.dumps(GOOD | {"output_length": None}), r"line 2: output_length is None; it must be a number"),
        (
            json.dumps({"timestamp": 0, "output_length": 5}),
            r"line 2: input_length is missing; the line has 'timestamp, out",
        ),
        (
            json.dumps(GOOD | {"hash_ids": [0, 1]}),
            r"line 2: hash_ids is \[0, 1\]; it must be a list of 1: one for each 512",
        ),
        (json.dumps(GOOD | {"hash_ids": ["a"]}), r"line 2: hash_ids is \['a'\]; it must be a list of whole numbers"),
        (json.dumps(GOOD | {"input_length": 1e400}), r"line 2"),
        ('{"timestamp": 1e999, "input_length": 2, "output_length": 2}', r"line 2"),
        (b"\xff\xfe{}", r"line 2 is no JSON"),
    ],
)
def test_a_bad_line_is_named_with_its_field(tmp_path, line, complaint):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b"\n" + (line if isinstance(line, bytes) else line.encode()) + b"\n")
    with pytest.raises(ConfigError, match=complaint) as caught:
        list(JsonTrace(path).requests())
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("TIMESTAMP,ContextTokens\n", "no column 'GeneratedTokens'; its first line names 'TIMESTAMP, ContextTokens'"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16,5\n", "line 2 has 2 cells, but the first line 3"),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,5,5\n",
            "line 2: TIMESTAMP is 'noon'; it must be a date",
        ),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16,x,5\n",
            "line 2: ContextTokens is 'x'; it must be a",
        ),
        ('TIMESTAMP,ContextTokens,GeneratedTokens\n"2023-11-16,1,5\n', "is no CSV"),
    ],
)
def test_a_bad_row_is_named_with_its_column(tmp_path, text, complaint):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        list(AzureTrace(path).requests())


def test_an_empty_file_a_missing_one_and_one_out_of_order(tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    with pytest.raises(ConfigError, match="has no requests"):
        TraceWorkload("mooncake", JsonTrace(empty), FILLER).conversations(1, 1)
    with pytest.raises(ConfigError, match=r"can't read .*none.jsonl: No such file"):
        TraceWorkload("mooncake", JsonTrace(tmp_path / "none.jsonl"), FILLER).conversations(1, 1)
    rows = [{"timestamp": time, "input_length": 5, "output_length": 1} for time in (9000, 4000)]
    unsorted = written(tmp_path / "unsorted.jsonl", rows)
    with pytest.raises(ConfigError, match=r"must be sorted by time: 4.0 s comes after 9.0 s"):
        TraceWorkload("mooncake", JsonTrace(unsorted), FILLER).conversations(9, 1)


def test_only_what_is_asked_for_is_read(tmp_path):
    path = written(tmp_path / "t.jsonl", [GOOD, GOOD])
    path.write_text(path.read_text() + "broken\n")
    load = TraceWorkload("mooncake", JsonTrace(path), FILLER)
    assert len(load.conversations(2, 1)) == 2
    with pytest.raises(ConfigError, match="line 3"):
        load.conversations(3, 1)


def test_a_line_without_an_end_is_not_read_into_memory(tmp_path):
    path = tmp_path / "endless.jsonl"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(ConfigError, match="line 1 has more than 16 MiB"):
        list(JsonTrace(path).requests())
