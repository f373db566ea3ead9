"""Types of fields of requests, with the bounds that the OpenAPI document tells.

The bounds are those of `freehold.text.params`, which checks them: decoding doesn't, since its messages would name no
remedy. It checks patterns, which have their messages here.
"""

from typing import Annotated, Any

from msgspec import Meta

from freehold.protocol import MAX_PRIORITY, ServiceClass
from freehold.text import param_checks, params

SERVICE_TIERS: dict[str, ServiceClass] = {
    "auto": "interactive",
    "default": "interactive",
    "priority": "interactive",
    "interactive": "interactive",
    "agent": "agent",
    "flex": "batch",
    "batch": "batch",
}
"""Classes by what `service_tier` may say: OpenAI's words and our own."""


RETENTIONS_S: dict[str, float] = {"in_memory": 600.0, "in-memory": 600.0, "24h": 86400.0}
"""Seconds for which a pinned prefix stays after it was last used, by what `prompt_cache_retention` may say."""

MAX_CACHE_KEY = 256
"""Characters."""


TOOL_NAME = r"^[a-zA-Z0-9_.-]{1,128}$(?!\n)"
"""In Python, `$` alone would let a line feed pass at the end."""
PATTERNS = {TOOL_NAME: "a name has 1 to 128 characters of a-z, A-Z, 0-9, _, . and -"}
"""Patterns that decoding checks, and what clients are told instead of them."""


def told(**keywords: Any) -> Meta:
    """Keywords of JSON Schema that are documented, and checked elsewhere."""
    return Meta(extra_json_schema=keywords)


def _within(low: float, high: float) -> Meta:
    return told(minimum=low, maximum=high)


_Penalty = _within(-params.MAX_PENALTY, params.MAX_PENALTY)
_Stop = Annotated[str, told(minLength=1, maxLength=param_checks.MAX_STOP_BYTES)]

Temperature = Annotated[float, _within(0, params.MAX_TEMPERATURE)]
Share = Annotated[float, _within(0, 1)]
TopK = Annotated[int, _within(-1, params.MAX_INT)]
NumAnswers = Annotated[int, _within(1, params.MAX_N)]
Seed = Annotated[int, _within(0, params.MAX_SEED)]
NumTokens = Annotated[int, _within(0, params.MAX_INT)]
SomeTokens = Annotated[int, _within(1, params.MAX_INT)]
Penalty = Annotated[float, _Penalty]
RepetitionPenalty = Annotated[float, _within(params.MIN_REPETITION_PENALTY, params.MAX_REPETITION_PENALTY)]
TokenId = Annotated[int, told(minimum=0)]
StopTokenIds = Annotated[list[TokenId], told(maxItems=params.MAX_STOP_TOKEN_IDS)]
AllowedTokenIds = Annotated[list[TokenId], told(minItems=1, maxItems=params.MAX_ALLOWED_TOKEN_IDS)]
Stop = _Stop | Annotated[list[_Stop], told(maxItems=param_checks.MAX_STOPS)]
LogitBias = Annotated[
    dict[str, Annotated[float, _within(-params.MAX_BIAS, params.MAX_BIAS)]],
    told(maxProperties=params.MAX_BIASES, propertyNames={"pattern": "^[0-9]{1,20}$"}),
]
NumLogprobs = Annotated[int, _within(0, params.MAX_LOGPROBS)]
CacheKey = Annotated[str, told(minLength=1, maxLength=MAX_CACHE_KEY)]
CacheRetention = Annotated[str, told(enum=list(RETENTIONS_S))]
Priority = Annotated[int, _within(-MAX_PRIORITY, MAX_PRIORITY)]
ServiceTier = Annotated[str, told(enum=list(SERVICE_TIERS))]
StopSequences = Annotated[list[_Stop], told(maxItems=param_checks.MAX_STOPS)]
MessageTier = Annotated[str, told(enum=["standard_only", *SERVICE_TIERS])]
