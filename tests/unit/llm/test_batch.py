"""Many prompts from any iterable: bounded, in any order or their own, and nothing is left behind."""

import gc
import itertools
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.llm.idle import wait_until_idle

from freehold import LLM, Completion, SamplingParams
from freehold.backends.script import NotFinite, Pause, Scripts
from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.errors import EngineError, RequestError
from freehold.files.vocabulary import TextAssets
from freehold.llm.completion import Answer
from freehold.text.stream import TextStream

CHAT = [{"role": "user", "content": "Say it."}]
SHORT = SamplingParams(max_tokens=2)
MOST = 8
"""Answers in flight over these engines: twice four rows."""


class Source:
    """Prompts without end, and how many were taken."""

    def __init__(self) -> None:
        self.num_taken = 0

    def __iter__(self) -> Iterator[list[int]]:
        while True:
            self.num_taken += 1
            yield [99 + self.num_taken, 7]


def test_every_prompt_gets_its_answer(llm: LLM) -> None:
    prompts = [[100 + n, 7] for n in range(100)]
    completions = list(llm.generate_each(iter(prompts), SHORT))
    assert sorted(completion.prompt_index for completion in completions) == list(range(100))
    for completion in completions:
        assert completion.token_ids == tuple(prompts[completion.prompt_index]), "the script echoes"


def test_each_says_the_same_as_all(llm: LLM) -> None:
    prompts = [f"Prompt {n}" for n in range(30)]
    params = [SamplingParams(n=1 + n % 3, max_tokens=1 + n % 5, seed=n) for n in range(30)]
    llm.generate(prompts, params)  # so that all is cached for both
    whole = llm.generate(prompts, params, digests=True)
    assert list(llm.generate_each(prompts, iter(params), in_order=True, digests=True)) == whole
    as_they_end = llm.generate_each(prompts, params, digests=True)
    assert sorted(as_they_end, key=lambda c: (c.prompt_index, c.choice)) == whole


def test_prompts_may_be_text_ids_or_chats(llm: LLM, text: TextAssets) -> None:
    assert text.template is not None
    forms: list[Any] = ["The sea", text.tokenizer.encode("The sea"), CHAT]
    params = SamplingParams(max_tokens=3, ignore_eos=True)
    as_text, as_ids, chat = llm.generate_each(forms, params, in_order=True)
    assert as_text.text == as_ids.text
    assert chat.token_ids == tuple(text.template.render(CHAT).encode(text.tokenizer)[:3])


@pytest.mark.parametrize("in_order", [False, True])
def test_an_endless_source_is_taken_from_as_there_is_room(llm: LLM, engine: Engine, in_order: bool) -> None:
    source = Source()
    completions = llm.generate_each(source, SHORT, in_order=in_order)
    assert source.num_taken == 0
    for num_given, completion in enumerate(itertools.islice(completions, 200)):
        assert completion.token_ids == (completion.prompt_index + 100, 7)
        assert source.num_taken <= num_given + 1 + 4 * MOST
        assert engine.num_live <= MOST
        assert not in_order or completion.prompt_index == num_given
    completions.close()  # type: ignore[attr-defined]
    wait_until_idle(engine)
    assert source.num_taken < 200 + 4 * MOST + 1


def test_batches_stay_full(llm: LLM, engine: Engine, scripts: Scripts) -> None:
    """Whenever a completion is given out and more are to come, more answers than a step holds are with the engine."""
    scripts.add_rule(lambda _ids: True, lambda ids: [ids[0], Pause(0.01)] * 30)
    params = (SamplingParams(max_tokens=5 + n % 7) for n in itertools.count())
    live = [engine.num_live for _ in itertools.islice(llm.generate_each(Source(), params), 40)]
    assert sum(live) / len(live) > llm.info.max_num_seqs


def test_in_order_a_slow_answer_is_waited_for_with_bounded_look_ahead(
    llm: LLM, engine: Engine, scripts: Scripts
) -> None:
    scripts.add([103, 7], [Pause(0.3), 103, 7])  # holds up its step, so one neighbour's as well
    source = Source()
    completions = llm.generate_each(source, SHORT, in_order=True)
    assert [completion.prompt_index for completion in itertools.islice(completions, 60)] == list(range(60))
    assert source.num_taken <= 60 + 4 * MOST


@pytest.mark.parametrize("num_prompts", [1500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_memory_does_not_grow_with_the_prompts(text: TextAssets, num_prompts: int) -> None:
    # A KV cache that is soon full: what the prefix tree remembers is bounded by it.
    config = EngineConfig(
        model_path=Path("/nowhere"), backend="scripted", max_num_seqs=8, max_model_len=500, kv_cache_bytes=2 << 20
    )
    num_warm = 700  # until all that may be remembered is
    # All different, of few ids: the tokenizer remembers each token's bytes.
    prompts = ([*(100 + n // 8**i % 8 for i in range(5)), *range(100, 130)] for n in range(num_prompts))
    with LLM.over(Engine.start(config), text) as llm:
        completions = llm.generate_each(prompts, SHORT)
        tracemalloc.start()
        try:
            assert sum(1 for _ in itertools.islice(completions, num_warm)) == num_warm
            warm_bytes, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            assert sum(1 for _ in itertools.islice(completions, num_prompts - num_warm - 1)) > 0
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        num_kept = sum(type(thing) in (Completion, Answer, TextStream) for thing in gc.get_objects())
        assert num_kept < 100, "of each prompt there are three"
        assert sum(1 for _ in completions) == 1
    assert peak_bytes - warm_bytes < 400 << 10, "the objects of a prompt take 500 bytes and more"


BAD: list[Any] = [[], [1 << 20], [5] * 500, 5, None, [1.5], b"abc", {"role": "user"}, "\ud800"]


def test_a_bad_prompt_costs_no_other(llm: LLM, engine: Engine) -> None:
    prompts: list[Any] = [prompt for bad in BAD for prompt in ([5, 6], bad)]
    completions = list(llm.generate_each(prompts, SHORT, in_order=True))
    assert [completion.prompt_index for completion in completions] == list(range(len(prompts)))
    for completion in completions:
        if completion.prompt_index % 2 == 0:
            assert (completion.token_ids, completion.error) == ((5, 6), None)
        else:
            assert (completion.finish_reason, completion.token_ids) == ("failed", ())
            assert "prompt" in (completion.error or "")
    assert engine.ledger().refused == 0


def test_bad_parameters_cost_no_other(llm: LLM) -> None:
    params = [SHORT, SamplingParams(top_p=2), SHORT]
    first, bad, last = llm.generate_each([[5, 6]] * 3, params, in_order=True)
    assert first.token_ids == last.token_ids == (5, 6)
    assert "top_p is 2" in (bad.error or "")


@pytest.mark.parametrize(
    "bad",
    [{"top_p": 2}, {"stop": 5}, {"stop": "\ud800"}, {"logit_bias": [1]}, {"seed": 10**5000}, {"temperature": "x"}],
)
def test_bad_parameters_for_all_are_refused_at_once(llm: LLM, tmp_path: Path, bad: dict[str, Any]) -> None:
    path = tmp_path / "journal"
    for journal in (None, path):
        with pytest.raises(RequestError) as refusal:
            llm.generate_each(itertools.repeat([5, 6]), SamplingParams(**bad), journal=journal)
        assert [refusal.value.param] == list(bad)
    assert not path.exists()


@pytest.mark.parametrize("journal", [None, "journal"])
def test_a_class_that_there_is_not_is_refused(llm: LLM, engine: Engine, tmp_path: Path, journal: str | None) -> None:
    path = tmp_path / journal if journal else None
    service: Any = "urgent"
    with pytest.raises(RequestError, match="service is 'urgent'"):
        llm.generate([[5, 6]], SHORT, service=service, journal=path)
    (refused,) = llm.generate_each([[5, 6]], SHORT, service=service, journal=path)
    assert "service is 'urgent'" in (refused.error or "")
    assert engine.ledger().accepted == 0


@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_strict_raises_at_a_bad_prompt_and_ends_what_runs(llm: LLM, engine: Engine, scripts: Scripts, bad: Any) -> None:
    scripts.add([5], [6, Pause(0.05)] * 400)
    completions = llm.generate_each([[5], [5], bad, [5]], strict=True)
    with pytest.raises(RequestError, match="prompt"):
        list(completions)
    wait_until_idle(engine)
    assert engine.ledger().accepted == engine.ledger().cancelled == 2


def test_a_failed_request_is_a_failed_completion(llm: LLM, scripts: Scripts) -> None:
    scripts.add([5], [6, NotFinite(), 7])
    bad, good = llm.generate_each([[5], [8, 7]], SamplingParams(max_tokens=3), in_order=True, strict=True)
    assert (bad.finish_reason, bad.token_ids) == ("failed", (6,))
    assert (good.finish_reason, good.error) == ("length", None)


@pytest.mark.parametrize("prompts", [None, 5, "text", b"bytes", {"role": "user"}], ids=repr)
def test_what_is_no_iterable_of_prompts_is_refused_at_once(llm: LLM, prompts: Any) -> None:
    with pytest.raises(RequestError, match="an iterable of prompts is needed"):
        llm.generate_each(prompts)


def test_params_that_are_none_or_too_few(llm: LLM) -> None:
    wrong: Any
    for wrong in (5, SamplingParams):
        with pytest.raises(RequestError, match="params"):
            llm.generate_each([[5]], wrong)
    for wrong in ([5], [SHORT], "xy"):
        with pytest.raises(RequestError, match="params"):
            list(llm.generate_each([[5], [6]], wrong))


@pytest.mark.parametrize("ending", ["close", "forget", "raise"])
def test_abandoned_iterations_leave_nothing_running(llm: LLM, engine: Engine, scripts: Scripts, ending: str) -> None:
    scripts.add([5], [6, Pause(0.02)] * 490)
    prompts: Iterator[list[int]] = itertools.chain([[7, 7]], itertools.repeat([5]))
    params = itertools.chain([SamplingParams(max_tokens=1)], itertools.repeat(SamplingParams()))
    completions: Any = llm.generate_each(prompts, params)
    assert next(completions).token_ids == (7,)
    assert engine.num_live > 0
    if ending == "close":
        completions.close()
    elif ending == "raise":
        with pytest.raises(ZeroDivisionError):
            completions.throw(ZeroDivisionError())
    del completions
    wait_until_idle(engine)
    assert engine.ledger().finished == 1


def test_a_source_that_raises_ends_what_runs(llm: LLM, engine: Engine, scripts: Scripts) -> None:
    def broken() -> Iterator[list[int]]:
        yield [5]
        raise OSError("the disk is gone")

    scripts.add([5], [6, Pause(0.02)] * 490)
    with pytest.raises(OSError, match="the disk is gone"):
        list(llm.generate_each(broken()))
    wait_until_idle(engine)


def test_closing_the_model_ends_the_iteration(llm: LLM, scripts: Scripts) -> None:
    completions = llm.generate_each(Source(), SHORT)
    next(completions)
    llm.close()
    with pytest.raises(EngineError) as refusal:
        list(completions)
    assert refusal.value.code in {"engine_stopping", "engine_stopped"}
    with pytest.raises(EngineError):
        llm.generate_each([[5]])


@pytest.mark.parametrize("code", ["engine_busy", "queue_full"])
def test_a_full_engine_is_tried_again(llm: LLM, engine: Engine, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    submit, tries = engine.submit, itertools.count()

    def sometimes(generate: Any, on_event: Any) -> None:
        if next(tries) % 3 < 2:
            raise EngineError("no room", code=code)
        submit(generate, on_event)

    monkeypatch.setattr(engine, "submit", sometimes)
    completions: list[Completion] = list(llm.generate_each([[100 + n, 7] for n in range(10)], SHORT, in_order=True))
    assert [completion.token_ids for completion in completions] == [(100 + n, 7) for n in range(10)]


def test_batches_are_batch_class_and_streams_are_not(llm: LLM, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    submit, classes = engine.submit, list[str]()

    def note(generate: Any, on_event: Any) -> None:
        classes.append(generate.service)
        submit(generate, on_event)

    monkeypatch.setattr(engine, "submit", note)
    llm.generate([5], SHORT)
    list(llm.generate_each([[5]], SHORT))
    llm.generate([5], SHORT, service="interactive")
    list(llm.stream([5], SHORT))
    assert classes == ["batch", "batch", "interactive", "interactive"]


def test_a_bar_is_shown_on_a_terminal_only(llm: LLM, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    for is_terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda is_terminal=is_terminal: is_terminal)
        llm.generate([[5, 6]] * 9, SamplingParams(max_tokens=2, n=2), progress=True)
        list(llm.generate_each([[5, 6]] * 9, SHORT, progress=True))
        list(llm.generate_each(iter([[5, 6]] * 9), SHORT, progress=True))
        shown = capsys.readouterr().err
        if is_terminal:
            assert "18/18" in shown
            assert "9/9" in shown
            assert "9/?" in shown
            assert "tokens/s" in shown
        else:
            assert shown == ""
    llm.generate([[5, 6]] * 9, SHORT)
    assert capsys.readouterr().err == ""
