"""What Langfuse reads in a request's span, in its own words: they tell it more than the conventions' can."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from freehold.observe import genai
from freehold.serve.entrance.record import Record
from freehold.serve.tracing.notes import Attributes, RequestNotes

_PARAMETERS = {
    genai.REQUEST_MAX_TOKENS: "max_tokens",
    genai.REQUEST_TEMPERATURE: "temperature",
    genai.REQUEST_TOP_P: "top_p",
    genai.REQUEST_TOP_K: "top_k",
    genai.REQUEST_SEED: "seed",
    genai.REQUEST_FREQUENCY_PENALTY: "frequency_penalty",
    genai.REQUEST_PRESENCE_PENALTY: "presence_penalty",
    genai.REQUEST_CHOICE_COUNT: "n",
    genai.REQUEST_REASONING_LEVEL: "reasoning_effort",
}


def langfuse_attributes(notes: RequestNotes, record: Record, attributes: Attributes) -> Attributes:
    """
    Args:
        attributes: what the span says in the conventions' words.
    """
    found: Attributes = {genai.LANGFUSE_TYPE: "generation"}
    parameters = {ours: attributes[name] for name, ours in _PARAMETERS.items() if name in attributes}
    if parameters:
        found[genai.LANGFUSE_PARAMETERS] = _json(parameters)
    if error := attributes.get(genai.ERROR_TYPE):
        is_ours = record.status >= 500 or record.status == 0 or bool(record.failure)
        found[genai.LANGFUSE_LEVEL] = "ERROR" if is_ours else "WARNING"
        found[genai.LANGFUSE_STATUS] = error
    if notes.answers:
        found[genai.LANGFUSE_MODEL] = attributes[genai.RESPONSE_MODEL]
        found[genai.LANGFUSE_USAGE] = _json(_usage(record))
    if record.first_s is not None:
        first = datetime.fromtimestamp(record.first_s + notes.unix_s, UTC)
        found[genai.LANGFUSE_COMPLETION_START] = first.isoformat(timespec="microseconds")
    for name, parts in ((genai.LANGFUSE_INPUT, genai.INPUT_MESSAGES), (genai.LANGFUSE_OUTPUT, genai.OUTPUT_MESSAGES)):
        if said := attributes.get(parts):
            found[name] = said if isinstance(said, str) else _json(said)
    return found


def _usage(record: Record) -> dict[str, int]:
    """Tokens by kind. It adds up what begins with the same word, and each kind has its own price."""
    return {
        "input": record.num_prompt_tokens - record.num_cached_tokens,
        "input_cached_tokens": record.num_cached_tokens,
        "output": record.num_output_tokens - record.num_reasoning_tokens,
        "output_reasoning_tokens": record.num_reasoning_tokens,
        "total": record.num_prompt_tokens + record.num_output_tokens,
    }


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
