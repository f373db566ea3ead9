"""The offline API over the scripted backend, with the default model's real tokenizer and template."""

import asyncio
import gc
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.llm.idle import wait_until_idle

from freehold import LLM, Completion, SamplingParams
from freehold.backends.script import NotFinite, Pause, Scripts
from freehold.engine.client import Engine
from freehold.errors import ConfigError, EngineError, RequestError
from freehold.files.vocabulary import TextAssets

CHAT = [{"role": "user", "content": "Say it."}]


def test_answers_come_in_the_order_of_the_prompts(llm: LLM, text: TextAssets) -> None:
    """The script echoes; more prompts than fit in two steps, of different lengths."""
    prompts = [f"Prompt {i} " + "and so on " * (i % 7) for i in range(60)]
    params = [SamplingParams(max_tokens=len(text.tokenizer.encode(prompt))) for prompt in prompts]
    done: list[tuple[int, int]] = []
    completions = llm.generate(prompts, params, on_progress=lambda count, total: done.append((count, total)))
    assert [completion.text for completion in completions] == prompts
    assert [completion.prompt_index for completion in completions] == list(range(60))
    assert done == [(i, 60) for i in range(1, 61)]
    for completion, one in zip(completions, params, strict=True):
        assert completion.finish_reason == "length"
        assert completion.num_output_tokens == completion.num_prompt_tokens == one.max_tokens
        assert len(completion.token_ids) == one.max_tokens
        assert completion.error is None


def test_a_prompt_may_be_text_or_ids_one_or_many(llm: LLM, text: TextAssets) -> None:
    ids = text.tokenizer.encode("The sea")
    params = SamplingParams(max_tokens=len(ids))
    array = np.array(ids)
    for prompts in (
        "The sea",
        ["The sea"],
        ids,
        tuple(ids),
        [ids],
        [tuple(ids)],
        array,
        [array],
        list(array),
        array[None],
    ):
        (completion,) = llm.generate(prompts, params)
        assert completion.text == "The sea"
        assert completion.token_ids == tuple(ids)
    mixed = llm.generate(["The sea", ids], params)
    assert [completion.text for completion in mixed] == ["The sea", "The sea"]
    assert llm.generate([], params) == []


def test_a_stop_string_ends_the_answer_and_the_engines_work(
    llm: LLM, engine: Engine, scripts: Scripts, text: TextAssets
) -> None:
    answer = text.tokenizer.encode("one two three. END and more of it")
    scripts.add(text.tokenizer.encode("Count"), answer + [Pause(0.01), answer[-1]] * 400)
    (completion,) = llm.generate("Count", SamplingParams(stop=["END"]))
    assert completion.text == "one two three. "
    assert (completion.finish_reason, completion.stop) == ("stop", "END")
    assert completion.num_output_tokens == len(completion.token_ids) < len(answer)
    assert engine.ledger().cancelled == 1


def test_the_models_own_end_is_reported_and_no_text(llm: LLM, scripts: Scripts, text: TextAssets) -> None:
    (eos_id, *_) = text.tokenizer.eos_ids
    scripts.add(text.tokenizer.encode("Hi"), [*text.tokenizer.encode("Hello"), eos_id])
    (completion,) = llm.generate("Hi")
    assert (completion.text, completion.finish_reason, completion.stop) == ("Hello", "stop", eos_id)
    assert completion.token_ids[-1] == eos_id
    (completion,) = llm.generate("Hi", SamplingParams(ignore_eos=True, max_tokens=5))
    assert (completion.finish_reason, completion.num_output_tokens) == ("length", 5)


def test_without_max_tokens_the_context_is_the_end(llm: LLM) -> None:
    for num_prompt in (1, 250, 499):
        (completion,) = llm.generate([5] * num_prompt)
        assert (completion.finish_reason, completion.num_output_tokens) == ("length", 500 - num_prompt)


def test_n_answers_stand_together(llm: LLM) -> None:
    completions = llm.generate([[5, 6], [7, 8]], SamplingParams(n=3, max_tokens=2), digests=True)
    assert [(c.prompt_index, c.choice) for c in completions] == [(i, j) for i in range(2) for j in range(3)]
    assert [c.token_ids for c in completions] == [(5, 6)] * 3 + [(7, 8)] * 3
    assert all(len(c.digests) == 2 for c in completions)
    assert len({c.digests for c in completions}) == 2


@pytest.mark.parametrize(
    ("prompts", "params", "code"),
    [
        ([[5], []], None, "empty_prompt"),
        ([[5], [1 << 20]], None, "token_id_out_of_range"),
        ([[5], [5] * 500], None, "context_length_exceeded"),
        ([[5], [5]], [SamplingParams()], "invalid_value"),
        ([[5], [5]], [SamplingParams(), SamplingParams(top_p=2)], "invalid_value"),
    ],
)
def test_everything_is_checked_before_anything_runs(llm: LLM, engine: Engine, prompts, params, code) -> None:
    with pytest.raises(RequestError) as refusal:
        llm.generate(prompts, params)
    assert refusal.value.code == code
    assert engine.ledger().received == 0


NO_PROMPTS: list[Any] = [
    *(None, True, 5, 1.5, b"abc", bytearray(b"a"), {"a": 1}, {5}, object(), iter([5])),
    *([None], [True], [1.9], [5, "6"], [5, None], [b"abc"], [{5}], ["a", None], ["a", 5], ["a", b"b"], [[5], 6]),
    *([[True]], [[1.9, "2"]], [["a"]], [[b"a"]], [[5], [None]], [[[5]]], np.array([1.5]), np.array([True])),
    *(np.zeros((1, 1, 1), int), np.array(5)),
]
NO_PARAMS: list[Any] = [{}, {"n": 1}, 5, "x", True, [None, 5], ["x"], SamplingParams]


def check_named(refusal: RequestError, name: str) -> None:
    """The message tells the argument, the value and what is needed."""
    assert re.match(rf"{name}(\[\d+\])* is .* is needed$", str(refusal), re.DOTALL), refusal
    assert (refusal.param, refusal.code) == (name, "invalid_type")
    assert len(str(refusal)) < 400


@pytest.mark.parametrize("prompts", NO_PROMPTS, ids=lambda value: repr(value).split(" at 0x")[0])
def test_what_is_no_prompt_is_refused_by_name(llm: LLM, engine: Engine, prompts: Any) -> None:
    with pytest.raises(RequestError) as refusal:
        llm.generate(prompts)
    check_named(refusal.value, "prompts")
    for stream in (llm.stream, llm.astream):
        if not (isinstance(prompts, list) and prompts and isinstance(prompts[0], str)) and prompts is not None:
            with pytest.raises(RequestError) as refusal:
                stream(prompts)
            check_named(refusal.value, "prompt")
    assert engine.ledger().received == 0


@pytest.mark.parametrize("params", NO_PARAMS, ids=repr)
def test_what_are_no_params_is_refused_by_name(llm: LLM, engine: Engine, params: Any) -> None:
    for call in (llm.generate, llm.stream, llm.astream):
        if isinstance(params, list) and call is llm.generate:
            prompts: Any = [[5]] * len(params)
        elif isinstance(params, list):
            continue
        else:
            prompts = [5]
        with pytest.raises(RequestError) as refusal:
            call(prompts, params)
        check_named(refusal.value, "params")
    assert engine.ledger().received == 0


@pytest.mark.parametrize("messages", [None, 5, "hello", b"x", {"role": "user"}, [5], [CHAT, "x"], [[5]], [CHAT, None]])
def test_what_is_no_chat_is_refused_by_name(llm: LLM, engine: Engine, messages: Any) -> None:
    with pytest.raises(RequestError) as refusal:
        llm.chat(messages)
    check_named(refusal.value, "messages")
    assert engine.ledger().received == 0


def test_a_failed_request_is_told_and_costs_no_other(llm: LLM, scripts: Scripts) -> None:
    scripts.add([5], [6, NotFinite(), 7])
    bad, good = llm.generate([[5], [8]], SamplingParams(max_tokens=3))
    assert (bad.finish_reason, bad.token_ids) == ("failed", (6,))
    assert "NaN" in (bad.error or "")
    assert (good.finish_reason, good.error) == ("length", None)


def test_chat_goes_through_the_template(llm: LLM, text: TextAssets) -> None:
    assert text.template is not None
    prompt = text.template.render(CHAT).encode(text.tokenizer)
    one = llm.chat(CHAT, SamplingParams(max_tokens=len(prompt), ignore_eos=True))
    two = llm.chat([CHAT, CHAT], SamplingParams(max_tokens=len(prompt), ignore_eos=True))
    assert [c.token_ids for c in one + two] == [tuple(prompt)] * 3


@pytest.mark.parametrize("stop", [(), ("END",)])
def test_a_stream_says_the_same_as_the_whole(llm: LLM, scripts: Scripts, text: TextAssets, stop) -> None:
    answer = text.tokenizer.encode("naïve 🙂 text, then END and more")
    scripts.add(text.tokenizer.encode("Go"), answer)
    params = SamplingParams(max_tokens=len(answer), stop=stop, seed=1, logprobs=2, prompt_logprobs=0)
    (whole,) = llm.generate("Go", params)
    assert [score.token_id for score in whole.logprobs] == list(whole.token_ids)
    assert {len(score.top) for score in whole.logprobs} == {2}
    assert len(whole.prompt_logprobs) == whole.num_prompt_tokens - 1
    pieces = list(llm.stream("Go", params))

    async def collect() -> list:
        return [piece async for piece in llm.astream("Go", params)]

    for streamed in (pieces, asyncio.run(collect())):
        assert "".join(piece.text for piece in streamed) == whole.text
        assert sum((piece.token_ids for piece in streamed), ()) == whole.token_ids
        assert sum((piece.logprobs for piece in streamed), ()) == whole.logprobs
        assert [piece.completion for piece in streamed if piece.completion] == [whole]
        assert streamed[-1].completion == whole
    assert ("END" in whole.text) != bool(stop)


def test_a_chat_can_be_streamed(llm: LLM) -> None:
    (whole,) = llm.chat(CHAT, SamplingParams(max_tokens=7, ignore_eos=True))
    *_, last = llm.stream(CHAT, SamplingParams(max_tokens=7, ignore_eos=True))
    assert last.completion is not None
    assert last.completion.num_cached_tokens > whole.num_cached_tokens == 0, "the second time, the chat is cached"
    assert replace(last.completion, num_cached_tokens=0) == whole


def test_leaving_a_stream_early_ends_the_request(llm: LLM, engine: Engine, scripts: Scripts) -> None:
    scripts.add([5], [6, Pause(0.02)] * 490)
    for _piece in llm.stream([5]):
        break
    wait_until_idle(engine)

    async def leave() -> None:
        pieces = llm.astream([5])
        await anext(pieces)
        await pieces.aclose()

    asyncio.run(leave())
    wait_until_idle(engine)
    assert engine.ledger().cancelled == 2


def test_leaving_generate_by_an_exception_ends_its_requests(llm: LLM, engine: Engine, scripts: Scripts) -> None:
    def interrupt(count: int, total: int) -> None:
        raise KeyboardInterrupt

    scripts.add([5], [6, Pause(0.02)] * 490)
    scripts.add([6, 7], [6, Pause(0.5), 7, 6])
    params = [SamplingParams(max_tokens=count) for count in (3, 490, 490)]
    with pytest.raises(KeyboardInterrupt):
        llm.generate([[6, 7], [5], [5]], params, on_progress=interrupt)
    wait_until_idle(engine)
    assert engine.ledger().cancelled == 2


def test_streams_have_one_answer(llm: LLM) -> None:
    with pytest.raises(RequestError, match="n is 2"):
        llm.stream([5], SamplingParams(n=2))


def test_a_closed_model_says_so_and_starts_nothing(llm: LLM, text: TextAssets, monkeypatch: pytest.MonkeyPatch) -> None:
    llm.close()
    llm.close()
    assert text.template is not None
    monkeypatch.setattr(text.template, "render", lambda *_: pytest.fail("rendered"))
    for call in (
        lambda: llm.generate([[5]]),
        lambda: llm.chat(CHAT),
        lambda: llm.stream(CHAT),
        lambda: llm.astream(CHAT),
    ):
        with pytest.raises(EngineError) as refusal:
            call()
        assert refusal.value.code == "engine_stopped"


FORK = """
import os, sys
from freehold import LLM, SamplingParams
from freehold.errors import EngineError

llm = LLM(sys.argv[1], backend=sys.argv[2], max_model_len=100)
chat, params = [{"role": "user", "content": "Hi"}], SamplingParams(max_tokens=3)
assert len(llm.chat(chat, params)) == 1
streaming = llm.stream("Hello", params)
next(streaming)
pid = os.fork()
if pid == 0:
    calls = [
        lambda: llm.generate("Hello", params), lambda: llm.chat(chat, params), lambda: llm.stream(chat, params),
        lambda: llm.astream("Hello", params), lambda: next(streaming),
    ]
    for call in calls:
        try:
            call()
        except EngineError as error:
            assert error.code == "forked", error.code
        else:
            raise AssertionError("a fork's child was served")
    if sys.argv[3] == "close":
        llm.close()
    sys.exit(7)  # through all exit handlers
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert len(llm.chat(chat, params)) == 1
assert list(streaming)[-1].completion is not None
llm.close()
print("parent", "done")
"""


@pytest.mark.parametrize("ending", ["close", "exit"])
@pytest.mark.parametrize("backend", ["scripted", "cpu"])
def test_a_fork_of_the_process_is_told_so_and_leaves_the_parent_alone(
    smollm2_path: Path, backend: str, ending: str
) -> None:
    result = subprocess.run(
        [sys.executable, "-c", FORK, str(smollm2_path), backend, ending],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (result.returncode, result.stdout) == (0, "parent done\n"), result.stderr
    assert "Traceback" not in result.stderr


def test_a_forgotten_model_is_closed(engine: Engine, text: TextAssets) -> None:
    llm = LLM.over(engine, text)
    assert engine.health().ok
    del llm
    gc.collect()
    assert not engine.health().ok


def test_loading_by_path_with_settings(smollm2_path: Path) -> None:
    with LLM(smollm2_path, backend="scripted", max_model_len=100, max_num_seqs=2) as llm:
        assert (llm.info.max_model_len, llm.info.max_num_seqs) == (100, 2)
        (completion,) = llm.generate("Hello", SamplingParams(max_tokens=1))
        assert isinstance(completion, Completion)
        assert completion.text == "Hello"


def test_unknown_settings_are_refused(smollm2_path: Path) -> None:
    with pytest.raises(ConfigError, match="max_model_length"):
        LLM(smollm2_path, max_model_length=100)


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import freehold, json; print(json.dumps([name.split('.')[0] for name in sys.modules]))"
    source = Path(__file__).parents[3] / "src"
    result = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(source)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert not {"numpy", "msgspec", "tokenizers", "jinja2", "asyncio"} & set(json.loads(result.stdout))
