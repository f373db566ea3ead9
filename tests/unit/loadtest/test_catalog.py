"""Each data set by its name: lengths, prefixes in common, seeds, and what can't be."""

import json
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from word_tokenizer import Words

from freehold.errors import ConfigError
from freehold.loadtest.options import DatasetOptions as Choice
from freehold.loadtest.workloads.catalog import DATASETS, open_workload
from freehold.loadtest.workloads.filler import GUESSED
from freehold.loadtest.workloads.served import Served

WORDS = Words(num_bos=1)
FORMS = {
    "text": Served("text", 4000, WORDS.tokenize),
    "ids": Served("ids", 4000, WORDS.tokenize),
    "chat": Served("chat", 4000, WORDS.tokenize, WORDS.count_chat),
}


def tokens(form, prompt):
    """What the server would count."""
    if form == "ids":
        return len(prompt)
    if form == "text":
        return len(WORDS.tokenize(prompt))
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    return WORDS.count_chat(messages)


def said(prompt):
    """All words of a prompt, whatever form it has."""
    if isinstance(prompt, str):
        return prompt.split()
    return (
        [word for each in prompt for word in each["content"].split()] if isinstance(prompt[0], dict) else list(prompt)
    )


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=10, deadline=None)
@given(input_len=st.integers(10, 900), output_len=st.integers(1, 900), ratio=st.floats(0, 0.9), seed=st.integers())
def test_random_prompts_have_the_lengths_that_were_asked_for(form, input_len, output_len, ratio, seed):
    choice = Choice(random_input_len=input_len, random_output_len=output_len, random_range_ratio=ratio)
    if form == "chat" and input_len * (1 - ratio) < 7:
        ratio = 0.0
        choice = Choice(random_input_len=input_len, random_output_len=output_len)
    for each in open_workload(choice, FORMS[form]).conversations(3, seed):
        (turn,) = each.turns
        assert tokens(form, turn.prompt) == turn.input_len
        assert input_len * (1 - ratio) - 1 <= turn.input_len <= input_len * (1 + ratio) + 1
        assert output_len * (1 - ratio) - 1 <= turn.output_len <= output_len * (1 + ratio) + 1


def test_random_prompts_have_nothing_in_common_within_and_between_points():
    load = open_workload(Choice(random_input_len=200), FORMS["text"])
    assert not load.shares_prefixes
    prompts = [each.turns[0].prompt for seed in range(5) for each in load.conversations(40, seed)]
    assert max(Counter(tuple(prompt.split()[:6]) for prompt in prompts).values()) == 1
    assert prompts[40:80] == [each.turns[0].prompt for each in load.conversations(40, 1)]


def test_conversations_can_be_asked_for_in_any_order():
    made = open_workload(Choice(random_input_len=20), FORMS["text"]).conversations(9, 1)
    assert made[-1] == list(made)[8] == made[8]
    assert list(made[2:5]) == [made[2], made[3], made[4]]
    with pytest.raises(IndexError):
        made[9]


def test_many_long_prompts_take_no_memory_until_they_are_sent():
    load = open_workload(Choice(random_input_len=3000), FORMS["text"])
    assert len(load.conversations(10**9, 1)[10**9 - 1].turns[0].prompt.split()) == 2999


@pytest.mark.parametrize("form", FORMS)
def test_prefixes_are_shared_by_so_many_sessions_each(form):
    choice = Choice(name="prefix_repetition", num_prefixes=3, prefix_len=64, suffix_len=16, random_output_len=5)
    load = open_workload(choice, FORMS[form])
    assert load.shares_prefixes
    made = load.conversations(30, 7)
    beginnings = Counter(tuple(said(each.turns[0].prompt)[:64]) for each in made)
    assert list(beginnings.values()) == [10, 10, 10]
    assert len({tuple(said(each.turns[0].prompt)) for each in made}) == 30
    assert all(tokens(form, each.turns[0].prompt) == each.turns[0].input_len for each in made)
    others = {tuple(said(each.turns[0].prompt)[:64]) for each in load.conversations(30, 8)}
    assert not others & set(beginnings)


@pytest.mark.parametrize("form", ["text", "chat"])
def test_turns_grow_within_the_context(form):
    choice = Choice(
        name="multi_turn", num_turns=50, random_input_len=100, random_output_len=60, opening_len=40, pause_s=2.0
    )
    made = open_workload(choice, FORMS[form]).conversations(4, 1)
    for each in made:
        assert 20 < len(each.turns) < 50
        first = each.turns[0]
        assert tokens(form, first.prompt) == first.input_len
        assert len(said(first.prompt)) == 140
        words = sum(len(said(turn.prompt)) for turn in each.turns) + sum(turn.output_len for turn in each.turns)
        assert words <= 4000
        assert first.pause_s == 0.0
        assert all(turn.pause_s > 0 for turn in each.turns[1:])
    openings = {tuple(said(each.turns[0].prompt)[:40]) for each in made}
    assert len(openings) == 1


def test_a_text_that_goes_on_is_counted_rightly():
    choice = Choice(name="multi_turn", num_turns=3, random_input_len=10, random_output_len=60)
    (made,) = open_workload(choice, FORMS["text"]).conversations(1, 1)
    assert len(WORDS.tokenize("".join(turn.prompt for turn in made.turns))) == 31


def test_pauses_have_the_mean_that_was_asked_for():
    choice = Choice(name="multi_turn", num_turns=20, random_input_len=10, random_output_len=5, pause_s=3.0)
    made = open_workload(choice, FORMS["text"]).conversations(200, 1)
    pauses = [turn.pause_s for each in made for turn in each.turns[1:]]
    assert sum(pauses) / len(pauses) == pytest.approx(3.0, rel=0.06)


def test_published_agents_make_several_requests_each_and_chats_one():
    agents = open_workload(Choice(name="published", published="agent", length_scale=0.05), FORMS["chat"])
    steps = [len(each.turns) for each in agents.conversations(300, 1)]
    assert sum(steps) / 300 == pytest.approx(8.7, rel=0.2)
    by_name = open_workload(Choice(name="agent", length_scale=0.05), FORMS["chat"])
    assert list(by_name.conversations(3, 1)) == list(agents.conversations(3, 1))
    chats = open_workload(Choice(name="published", published="chat"), FORMS["chat"]).conversations(50, 1)
    for each in chats:
        (turn,) = each.turns
        assert tokens("chat", turn.prompt) == turn.input_len
        assert turn.input_len + turn.output_len <= 4000


def test_ids_are_exact_also_where_nobody_knows_what_they_mean():
    load = open_workload(Choice(random_input_len=50), Served("ids", vocab_size=1000))
    (one, other) = (each.turns[0].prompt for each in load.conversations(2, 1))
    assert (len(one), len(other)) == (50, 50)
    assert max(one + other) < 1000
    assert one != other


def test_a_vocabulary_without_words_has_ids():
    letters = [ord(char) for char in "ab"]
    load = open_workload(Choice(random_input_len=50), Served("ids", None, lambda text: letters * len(text), None, 300))
    assert len(load.conversations(2, 1)[1].turns[0].prompt) == 50
    with pytest.raises(ConfigError, match="common words are one token"):
        open_workload(Choice(), Served("text", None, lambda text: letters * len(text), None, 300))


def test_without_a_tokenizer_a_word_counts_as_one_token():
    load = open_workload(Choice(random_input_len=50), Served("text"))
    assert load.filler == GUESSED
    assert len(load.conversations(1, 1)[0].turns[0].prompt.split()) == 50


@pytest.mark.parametrize(
    ("choice", "complaint"),
    [
        (Choice(name="pile"), r"--dataset-name can't be 'pile'; there are: .*random"),
        (Choice(random_input_len=0), "--random-input-len can't be 0; it is a number of tokens"),
        (Choice(random_output_len=-1), "--random-output-len can't be -1"),
        (Choice(random_range_ratio=1.0), "--random-range-ratio can't be 1.0; it is at least 0 and below 1"),
        (
            Choice(random_input_len=3900),
            "prompts of 3900 tokens and answers of 128 don't fit",
        ),
        (Choice(name="mooncake"), "--dataset-name mooncake needs a file: --dataset-path FILE"),
        (Choice(name="sharegpt"), "--dataset-name sharegpt needs a file"),
        (Choice(name="published", published="poems"), "--published can't be 'poems'; there are: chat, code"),
        (Choice(name="published", length_scale=0), "--length-scale can't be 0"),
        (Choice(name="multi_turn", num_turns=0), "--num-turns can't be 0"),
        (Choice(name="timed_trace", trace_columns={"when": "x"}), "can't rename 'when'; there are: timestamp"),
        (Choice(name="timed_trace", trace_block_len=0), "--timed-trace-chunk-hash-size can't be 0"),
        (Choice(name="timed_trace", trace_unit_s=float("nan")), "--timed-trace-sec-multiplier can't be nan"),
    ],
)
def test_choices_that_cannot_be_are_refused(choice, complaint):
    with pytest.raises(ConfigError, match=complaint):
        open_workload(choice, FORMS["text"])


@pytest.mark.parametrize(
    ("choice", "complaint"),
    [
        (Choice(name="prefix_repetition", num_prefixes=0), "num-prefixes can't be 0"),
        (Choice(name="prefix_repetition", prefix_len=3990), "don't fit the model's context of 4000"),
        (Choice(name="multi_turn", opening_len=4000), "beginnings of 4001 tokens don't fit"),
        (Choice(name="multi_turn", pause_s=-1.0), r"pauses of -1.0 s can't be"),
        (Choice(name="mooncake", trace_speed=0.0), "--trace-speed can't be 0.0"),
    ],
)
def test_choices_that_show_later_are_refused(choice, complaint):
    with pytest.raises(ConfigError, match=complaint):
        open_workload(msgspec.structs.replace(choice, path="none.jsonl"), FORMS["text"]).conversations(2, 1)[0]


def test_every_name_opens(tmp_path):
    files = {
        "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,37,44\n",
        "burstgpt": "Timestamp,Request tokens,Response tokens\n5,47,18\n",
        "sharegpt": json.dumps(
            [{"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "well hello to you"}]}]
        ),
        "custom": '{"prompt": "say it"}',
    }
    trace = '{"timestamp": 0, "input_length": 20, "output_length": 5}'
    for name in set(DATASETS) - {"recording"}:
        path = tmp_path / name
        path.write_text(files.get(name, trace))
        load = open_workload(Choice(name=name, path=str(path)), FORMS["text"])
        assert load.name == name
        made = load.conversations(1, 1)
        assert len(made) == 1
        assert made[0].turns[0].prompt
