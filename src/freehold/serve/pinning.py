"""Which prefix of a prompt shall stay cached, as OpenAI's and Anthropic's clients ask for it."""

from freehold.errors import RequestError, shown
from freehold.protocol import Pin
from freehold.serve.field_types import MAX_CACHE_KEY, RETENTIONS_S
from freehold.serve.schema import SamplingFields

DEFAULT_RETENTION = "in_memory"
BREAKPOINT_TTLS_S = {"5m": 300.0, "1h": 3600.0}
"""Seconds, by what the ``ttl`` of Anthropic's ``cache_control`` may say."""


def pin_of(body: SamplingFields) -> Pin | None:
    """The prompt, under its ``prompt_cache_key`` if it has one; None if nothing is asked for.

    Raises:
        RequestError: an unknown retention, or a key that is empty or too long.
    """
    key, retention = body.prompt_cache_key, body.prompt_cache_retention
    if key is None and retention is None:
        return None
    if key is not None and not 0 < len(key) <= MAX_CACHE_KEY:
        raise RequestError(
            f"prompt_cache_key has {len(key)} characters; it may have 1 to {MAX_CACHE_KEY}", param="prompt_cache_key"
        )
    retention = DEFAULT_RETENTION if retention is None else retention
    if retention not in RETENTIONS_S:
        raise RequestError(
            f"prompt_cache_retention is {shown(retention)}; it may be {', '.join(RETENTIONS_S)}",
            param="prompt_cache_retention",
        )
    return Pin(name=key or "", ttl_s=RETENTIONS_S[retention])


def pin_up_to(num_tokens: int, ttl: str, param: str) -> Pin:
    """The first tokens of a prompt, up to a breakpoint of Anthropic's ``cache_control``.

    Raises:
        RequestError: an unknown time.
    """
    if ttl not in BREAKPOINT_TTLS_S:
        raise RequestError(f"ttl is {shown(ttl)}; it may be {' or '.join(BREAKPOINT_TTLS_S)}", param=param)
    return Pin(ttl_s=BREAKPOINT_TTLS_S[ttl], num_tokens=num_tokens)
