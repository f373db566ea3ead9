"""What a server counted of a request, as far as it can be true."""

from dataclasses import dataclass

import msgspec

MOST_TOKENS = 1 << 40
"""No request has more: a larger count is a fault of the server."""

_Told = int | float | None  # some servers write 3.0


class _PromptDetails(msgspec.Struct):
    cached_tokens: _Told = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: _Told = None


class Usage(msgspec.Struct):
    """The field ``usage`` of an answer."""

    prompt_tokens: _Told = None
    completion_tokens: _Told = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _OutputDetails | None = None


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens as the server counts them; None for what it doesn't tell, or tells as what can't be.

    Attributes:
        num_refused: counts that can't be true.
    """

    num_input: int | None = None
    num_output: int | None = None
    num_cached: int | None = None
    num_reasoning: int | None = None
    num_refused: int = 0


def counts_in(usage: Usage) -> TokenCounts:
    """The counts that can be true: whole numbers from 0 to `MOST_TOKENS`, and no more cached than asked."""
    details, output_details = usage.prompt_tokens_details, usage.completion_tokens_details
    told = (
        usage.prompt_tokens,
        usage.completion_tokens,
        details.cached_tokens if details else None,
        output_details.reasoning_tokens if output_details else None,
    )
    num_input, num_output, num_cached, num_reasoning = map(_possible, told)
    if num_input is not None and num_cached is not None and num_cached > num_input:
        num_cached = None
    found = (num_input, num_output, num_cached, num_reasoning)
    num_refused = sum(each is not None and count is None for each, count in zip(told, found, strict=True))
    return TokenCounts(num_input, num_output, num_cached, num_reasoning, num_refused)


def _possible(told: _Told) -> int | None:
    if told is None or not 0 <= told <= MOST_TOKENS or told != int(told):
        return None
    return int(told)
