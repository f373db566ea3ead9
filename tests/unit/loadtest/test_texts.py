"""Files of texts: what is taken of them, and what is said of bad ones."""

import json
import tracemalloc

import pytest

from freehold.errors import ConfigError
from freehold.loadtest.workloads.text_files import PromptFile, ShareGptFile
from freehold.loadtest.workloads.texts import Texts


def count(text):
    return len(text.split())


def chat(*said):
    """A conversation of ShareGPT: human and gpt take turns."""
    turns = [{"from": ("human", "gpt")[index % 2], "value": text} for index, text in enumerate(said)]
    return {"id": "x", "conversations": turns}


def sharegpt(tmp_path, entries, **how):
    path = tmp_path / "share.json"
    path.write_text(json.dumps(entries, **how))
    return ShareGptFile(path)


@pytest.mark.parametrize("indent", [None, 1])
def test_conversations_of_sharegpt(tmp_path, indent):
    file = sharegpt(
        tmp_path, [chat("what is it", "that is what it is", "and that", "yes of course it is")], indent=indent
    )
    load = Texts("sharegpt", file, count, is_verbatim=True)
    (made,) = load.conversations(5, 1)
    assert [(turn.prompt, turn.output_len) for turn in made.turns] == [("what is it", 5)]
    (made,) = Texts("sharegpt", file, count, is_verbatim=True, max_turns=9).conversations(5, 1)
    assert [turn.prompt for turn in made.turns] == ["what is it", "and that"]


def test_what_has_no_answer_is_left_out(tmp_path):
    entries = [
        chat(),
        chat("alone"),
        chat("", "an answer to nothing"),
        chat("short", "ok"),
        chat("good", "one two three four"),
    ]
    entries.append({"conversations": [{"from": "gpt", "value": "first"}, {"from": "human", "value": "second"}]})
    made = Texts("sharegpt", sharegpt(tmp_path, entries), count, is_verbatim=True).conversations(9, 1)
    assert [each.turns[0].prompt for each in made] == ["good"]


def test_what_does_not_fit_the_context_is_left_out(tmp_path):
    entries = [chat("word " * 90, "word " * 20), chat("word " * 30, "word " * 20)]
    load = Texts("sharegpt", sharegpt(tmp_path, entries), count, max_model_len=60, is_verbatim=True)
    assert [len(each.turns[0].prompt.split()) for each in load.conversations(9, 1)] == [30]


def test_points_take_others_and_mark_what_they_take(tmp_path):
    file = sharegpt(tmp_path, [chat(f"number {index}", "one two three four") for index in range(1000)])
    load = Texts("sharegpt", file, count)
    one, again, other = ([each.turns[0].prompt for each in load.conversations(40, seed)] for seed in (1, 1, 2))
    assert one == again
    assert len({text.split("] ")[1] for text in one}) == 40
    assert not {text[:6] for text in one} & {text[:6] for text in other}
    assert len({text.split("] ")[1] for text in one} & {text.split("] ")[1] for text in other}) < 20


def test_every_conversation_is_as_likely(tmp_path):
    file = sharegpt(tmp_path, [chat(str(index), "one two three four") for index in range(30)])
    load = Texts("sharegpt", file, count, is_verbatim=True)
    times = [0] * 30
    for seed in range(400):
        for each in load.conversations(2, seed):
            times[int(each.turns[0].prompt)] += 1
    assert min(times) > 8
    assert max(times) < 55


def test_prompts_of_the_custom_form(tmp_path):
    path = tmp_path / "prompts.jsonl"
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    path.write_text(
        json.dumps({"prompt": "say it", "output_tokens": 7})
        + "\n\n"
        + json.dumps({"messages": messages, "id": 3})
        + "\n"
    )
    made = {str(each.turns[0].prompt): each.turns[0] for each in
            Texts("custom", PromptFile(path), count, is_verbatim=True).conversations(9, 1)}  # fmt: skip
    assert made["say it"].output_len == 7
    assert made[str(tuple(messages))].output_len is None
    marked = Texts("custom", PromptFile(path), count, output_len=20).conversations(9, 1)
    assert {each.turns[0].output_len for each in marked} == {20}
    chats = [each.turns[0].prompt for each in marked if not isinstance(each.turns[0].prompt, str)]
    assert chats[0][0]["content"].endswith("] be brief")
    assert chats[0][1] == messages[1]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{}", "line 2: prompt is missing; the line has 'nothing'"),
        ('{"prompt": ""}', "line 2: prompt is ''; it must be a text"),
        ('{"prompt": 5}', "line 2: prompt is 5; it must be a text"),
        ('{"messages": []}', r"line 2: messages is \[\]; it must be a list of messages"),
        ('{"messages": [{"content": "x"}]}', "line 2: messages is .*; it must be a list of messages"),
        ('{"prompt": "x", "output_tokens": 0}', "line 2: output_tokens is 0; it must be a whole number, at least 1"),
        ('"text"', "line 2 is a str; it must be an object"),
    ],
)
def test_a_bad_prompt_is_named(tmp_path, line, complaint):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "good"}\n' + line + "\n")
    with pytest.raises(ConfigError, match=complaint):
        list(PromptFile(path).entries())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[\n{"conversations": 5}]', "line 2: conversations is 5; it must be a list"),
        ('[\n\n{"id": 1}]', "line 3: conversations is None; it must be a list"),
        (
            '[{"conversations": [{"from": "human"}]}]',
            "line 1: conversations is .*; it must be a list whose items have texts",
        ),
        ('[{"conversations": []},\n 7]', "line 2: '7' stands where an object should begin"),
        ('[{"conversations": []}', "line 1: the array doesn't end: the file was cut off"),
        ('[{"conversations": []},\n{"conv', "line 2: no JSON: Unterminated string"),
        ("[" * 100_000, "stands where an object should begin"),
        ('[{"a": ' + "[" * 100_000, "line 1: nested too deep"),
        (b"[\xff]", "is no UTF-8 text"),
    ],
)
def test_a_bad_conversation_is_named(tmp_path, text, complaint):
    path = tmp_path / "bad.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=complaint):
        list(ShareGptFile(path).entries())


def test_a_large_file_is_read_in_little_memory(tmp_path):
    path = tmp_path / "large.json"
    entry = json.dumps(chat("word " * 400, "word " * 400))
    with path.open("w") as file:
        file.write("[" + ",\n".join([entry] * 4000) + "]")
    assert path.stat().st_size > 16_000_000
    load = Texts("sharegpt", ShareGptFile(path), count)
    tracemalloc.start()
    try:
        assert len(load.conversations(10, 1)) == 10
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_a_file_with_nothing_usable(tmp_path):
    with pytest.raises(ConfigError, match="no conversation that can be used"):
        Texts("sharegpt", sharegpt(tmp_path, []), count).conversations(3, 1)
