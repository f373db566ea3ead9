"""From notes to spans, where the engine told less than it should, or a request ended early."""

from typing import Any

import pytest

from freehold.observe import genai
from freehold.protocol import Finish, RequestId, Stages
from freehold.serve.entrance.record import Record
from freehold.serve.tracing.notes import AnswerNotes, Asked, RequestNotes
from freehold.serve.tracing.spans import request_attributes, spans_within

QUEUE, PREFILL, DECODE = genai.STAGES


def finish(stages: Stages | None, **fields: Any) -> Finish:
    told = {"reason": "stop", "num_prompt_tokens": 5, "num_output_tokens": 3, **fields}
    return Finish(request_id=RequestId("r"), stages=stages, **told)


def notes_of(*finishes: Finish | None, **fields: Any) -> RequestNotes:
    answers = [AnswerNotes(finish=one) for one in finishes]
    told = {"place": None, "trace_id": "", "operation": "chat", "with_content": False, "began_s": 1.0, "unix_s": 0.0}
    return RequestNotes(**{**told, "answers": answers, "ended_s": 9.0, **fields})


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        (Stages(2.0, 3.0, 4.0, 8.0), [(QUEUE, 1.5, 3.0), (PREFILL, 3.0, 4.0), (DECODE, 4.0, 8.0)]),
        (Stages(2.0, 3.0, None, 8.0), [(QUEUE, 1.5, 3.0), (PREFILL, 3.0, 8.0)]),
        (Stages(2.0, None, None, 8.0), [(QUEUE, 1.5, 8.0)]),
        (None, []),
    ],
)
def test_the_stage_that_an_answer_ended_in_ends_with_it(stages: Stages | None, expected: list[Any]) -> None:
    record = Record("r")
    record.queued_s = 1.5
    found = [(one.name, one.began_s, one.ended_s) for one in spans_within(notes_of(finish(stages)), record)]
    assert found == expected


def test_answers_that_nothing_is_known_of_have_no_stages() -> None:
    notes = notes_of(None, finish(Stages(2.0, 3.0, 4.0, 8.0)))
    assert [one.attributes[genai.ANSWER_INDEX] for one in spans_within(notes, Record("r"))] == [1, 1, 1]
    assert not notes.is_complete


def test_preemptions_are_told_where_there_were_some() -> None:
    for number in (0, 2):
        notes = notes_of(finish(Stages(2.0, 3.0, 4.0, 8.0, number)))
        decode = list(spans_within(notes, Record("r")))[-1]
        assert decode.attributes.get(genai.NUM_PREEMPTIONS, 0) == number


def test_a_request_that_ended_before_it_was_understood() -> None:
    record = Record("r")
    record.status = 400
    record.note_refusal(400, "invalid_json", None)
    notes = notes_of()
    assert list(spans_within(notes, record)) == []
    attributes = request_attributes(notes, record, "model", genai.CONVENTIONS["released"])
    assert attributes == {genai.REQUEST_ID: "r", genai.HTTP_STATUS: 400, genai.ERROR_TYPE: "invalid_json"}


def test_what_was_asked_doesnt_hide_what_was_answered() -> None:
    record = Record("r")
    record.status = 200
    notes = notes_of(finish(None), asked=Asked(attributes={genai.REQUEST_MODEL: "alias"}))
    attributes = request_attributes(notes, record, "model", genai.CONVENTIONS["released"])
    assert (attributes[genai.REQUEST_MODEL], attributes[genai.RESPONSE_MODEL]) == ("alias", "model")


def test_the_last_answer_that_ends_completes_a_request() -> None:
    completed = []
    notes = notes_of(None, None)
    notes.on_complete = lambda: completed.append(notes.is_complete)
    notes.note_finish(1, finish(None))
    assert completed == []
    notes.note_finish(0, finish(None))
    assert completed == [True]


def test_names_are_of_the_conventions_or_say_whose_they_are() -> None:
    """A name that is misspelled would stand alone; those left behind are used by nobody."""
    names = {value for name, value in vars(genai).items() if name.isupper() and isinstance(value, str) and "." in value}
    stable = {"server", "http", "service", "user", "session", "error", "deployment"}
    assert {name.partition(".")[0] for name in names} == stable | {"gen_ai", "langfuse", "freehold"}
    released = pytest.importorskip("opentelemetry.semconv._incubating.attributes.gen_ai_attributes")
    known = {value for name, value in vars(released).items() if name.startswith("GEN_AI_") and isinstance(value, str)}
    newer = {"gen_ai.request.reasoning.level", "gen_ai.tool.definitions", "gen_ai.usage.cache_write.input_tokens"}
    ours = {name for name in names if name.startswith("gen_ai.")}
    vllm = {name for name in ours if name.startswith("gen_ai.latency.")} | {"gen_ai.request.id"}
    assert ours - vllm - newer <= known
    assert not ours & {
        "gen_ai.system",
        "gen_ai.prompt",
        "gen_ai.completion",
        "gen_ai.usage.cache_creation.input_tokens",
    }
