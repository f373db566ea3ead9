"""From what was noted of a request to its span and the spans within: names, moments and attributes.

A request's span holds one of its text's way to ids, one of compiling what answers must be, and for each answer those
of its stages: it waits (queue), its prompt is computed (prefill), it grows (decode).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from freehold.observe import genai
from freehold.observe.genai import Convention
from freehold.protocol import Stages
from freehold.serve.entrance.gate import outcome_of
from freehold.serve.entrance.record import Record
from freehold.serve.tracing import content
from freehold.serve.tracing.notes import AnswerNotes, Asked, Attributes, RequestNotes

MAX_CONTENT_BYTES = 1 << 20
"""Of JSON that one attribute may hold. More than that is left out, as half of it couldn't be read."""


@dataclass(frozen=True, slots=True)
class Within:
    """A span within a request's. Moments are seconds of the monotonic clock."""

    name: str
    began_s: float
    ended_s: float
    attributes: Attributes


def spans_within(notes: RequestNotes, record: Record) -> Iterator[Within]:
    """All of a request's, those of one answer in their order."""
    if notes.asked is not None and record.tokenized_s is not None:
        yield Within(genai.TOKENIZE, notes.asked.understood_s, record.tokenized_s, {})
    if record.compiling_s is not None and record.compiled_s is not None:
        yield Within(genai.COMPILE, record.compiling_s, record.compiled_s, {})
    for index, answer in enumerate(notes.answers):
        if answer.finish is not None and answer.finish.stages is not None:
            yield from _stages(index, answer.finish.stages, answer, record.queued_s)


def _stages(index: int, stages: Stages, answer: AnswerNotes, queued_s: float | None) -> Iterator[Within]:
    """The stages that an answer came to. One that it ended in, ends with it.

    It waits from when it was given to the engine: until a step is done, the scheduler takes no more on.
    """
    arrived_s = stages.arrived_s if queued_s is None else min(queued_s, stages.arrived_s)
    moments = (arrived_s, stages.started_s, stages.first_token_s)
    known = [moment for moment in moments if moment is not None] + [stages.ended_s]
    for name, began_s, ended_s in zip(genai.STAGES, known, known[1:], strict=False):
        yield Within(name, began_s, ended_s, _of_stage(name, index, answer))


def _of_stage(name: str, index: int, answer: AnswerNotes) -> Attributes:
    attributes: Attributes = {genai.ANSWER_INDEX: index}
    finish = answer.finish
    if finish is None:
        return attributes
    if name == "prefill":
        attributes[genai.USAGE_INPUT_TOKENS] = finish.num_prompt_tokens
        attributes[genai.USAGE_CACHE_READ] = finish.num_cached_tokens
    if name == "decode":
        attributes[genai.USAGE_OUTPUT_TOKENS] = finish.num_output_tokens
        if finish.stages is not None and finish.stages.num_preemptions:
            attributes[genai.NUM_PREEMPTIONS] = finish.stages.num_preemptions
    return attributes


def request_attributes(notes: RequestNotes, record: Record, model: str, convention: Convention) -> Attributes:
    """What a request's span says at its end.

    Args:
        model: the name that answers bear.
    """
    asked = notes.asked or Asked(attributes={})
    attributes = {
        **asked.attributes,
        genai.REQUEST_ID: record.request_id,
        genai.HTTP_STATUS: record.status,
        **_error(record),
    }
    if asked.conversation:
        attributes[genai.CONVERSATION_ID] = asked.conversation
    if record.key_id:
        attributes[genai.KEY_ID] = record.key_id
    if notes.answers:
        attributes |= _response(notes, record, model)
    if notes.with_content:
        attributes |= _content(notes, asked, convention)
    return attributes


def shared_attributes(notes: RequestNotes, environment: str) -> Attributes:
    """What all spans of a request say: Langfuse looks for it on each.

    Args:
        environment: such as ``production``; empty if nobody has named it.
    """
    asked = notes.asked or Asked(attributes={})
    return {
        name: value
        for name, value in (
            (genai.USER_ID, asked.user),
            (genai.SESSION_ID, asked.session),
            (genai.LANGFUSE_TAGS, asked.tags),
            (genai.ENVIRONMENT, environment),
        )
        if value
    }


def _error(record: Record) -> Attributes:
    """Why a request has no whole answer, from a fixed set of words."""
    outcome = outcome_of(record)
    if outcome == "completed":
        return {}
    code = record.failure or record.code or str(record.status)
    return {genai.ERROR_TYPE: outcome if outcome == "cancelled" else code}


def _response(notes: RequestNotes, record: Record, model: str) -> Attributes:
    attributes: Attributes = {
        genai.RESPONSE_ID: notes.response_id,
        genai.RESPONSE_MODEL: model,
        genai.RESPONSE_FINISH_REASONS: [answer.reason or genai.FINISH_ERROR for answer in notes.answers],
        genai.USAGE_INPUT_TOKENS: record.num_prompt_tokens,
        genai.USAGE_OUTPUT_TOKENS: record.num_output_tokens,
        genai.USAGE_CACHE_READ: record.num_cached_tokens,
        genai.SERVICE_CLASS: record.service,
        **_latencies(notes, record),
    }
    if record.num_reasoning_tokens:
        attributes[genai.USAGE_REASONING] = record.num_reasoning_tokens
    if num_written := max(0, notes.answers[0].num_pinned - record.num_cached_tokens):
        attributes[genai.USAGE_CACHE_WRITE] = num_written
    if num_calls := sum(answer.num_calls for answer in notes.answers):
        attributes[genai.NUM_TOOL_CALLS] = num_calls
    return attributes


def _latencies(notes: RequestNotes, record: Record) -> Attributes:
    """Seconds, as vLLM tells them; those of stages are the first answer's."""
    attributes: Attributes = {}
    if notes.ended_s is not None:
        attributes[genai.LATENCY_E2E] = notes.ended_s - notes.began_s
    if record.first_s is not None:
        attributes[genai.LATENCY_FIRST_TOKEN] = record.first_s - notes.began_s
        if notes.asked is not None and genai.REQUEST_STREAM in notes.asked.attributes:
            attributes[genai.RESPONSE_TIME_TO_FIRST_CHUNK] = record.first_s - notes.began_s
    names = dict(zip(genai.STAGES, (genai.LATENCY_QUEUE, genai.LATENCY_PREFILL, genai.LATENCY_DECODE), strict=True))
    for within in spans_within(notes, record):
        if within.attributes.get(genai.ANSWER_INDEX) == 0:
            attributes[names[within.name]] = within.ended_s - within.began_s
    return attributes


def _content(notes: RequestNotes, asked: Asked, convention: Convention) -> Attributes:
    """What was said, to the model and by it."""
    messages = list(asked.messages or ())
    found: dict[str, list[Any]] = {}
    if asked.is_system_apart and messages and messages[0].role == "system":
        found[genai.SYSTEM_INSTRUCTIONS] = content.instructions(messages.pop(0))
    found[genai.INPUT_MESSAGES] = content.told(messages)
    found[genai.TOOL_DEFINITIONS] = content.defined(asked.tools or ())
    found[genai.OUTPUT_MESSAGES] = [
        content.said(answer.said, answer.reason) for answer in notes.answers if answer.said is not None
    ]
    attributes: Attributes = {}
    for name, parts in found.items():
        text = msgspec.json.encode(parts)
        if len(text) > MAX_CONTENT_BYTES:
            attributes.setdefault(genai.CONTENT_OMITTED, []).append(name)
        elif parts:
            attributes[name] = parts if convention.structured_content else text.decode()
    return attributes
