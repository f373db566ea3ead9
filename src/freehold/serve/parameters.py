"""What both surfaces read alike from a body: sampling parameters and the form of the answer."""

import re
from typing import Any, Literal

from freehold.errors import RequestError, shown
from freehold.protocol import MAX_PRIORITY
from freehold.serve.entrance.caller import Caller
from freehold.serve.field_types import SERVICE_TIERS
from freehold.serve.pinning import pin_of
from freehold.serve.schema import SamplingFields
from freehold.serve.structured import wanted
from freehold.text.jobs import Handling
from freehold.text.param_checks import check_int
from freehold.text.params import SamplingParams

_SAME_NAMES = (
    "temperature", "top_p", "top_k", "min_p", "n", "seed", "stop", "stop_token_ids", "ignore_eos", "min_tokens",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "allowed_token_ids",
)  # fmt: skip
_ID = re.compile(r"-?[0-9]{1,20}")


def sampling_params(
    body: SamplingFields,
    *,
    vocab_size: int,
    max_tokens: int | None,
    logprobs: int | None,
    prompt_logprobs: int | None,
    max_tokens_field: str = "max_tokens",
) -> SamplingParams:
    """Checked parameters; what the body leaves out or sets to null takes its default.

    Args:
        logprobs, prompt_logprobs: as the surface asks for them.
        max_tokens_field: the field that `max_tokens` came from.

    Raises:
        RequestError: a value out of bounds, by name.
    """
    given: dict[str, Any] = {name: value for name in _SAME_NAMES if (value := getattr(body, name)) is not None}
    if body.logit_bias is not None:
        given["logit_bias"] = _biases(body.logit_bias)
    if (wish := wanted(body)) is not None:
        given["structured_outputs"] = wish.constraint
    params = SamplingParams(max_tokens=max_tokens, logprobs=logprobs, prompt_logprobs=prompt_logprobs, **given)
    try:
        params.validate(vocab_size=vocab_size)
    except RequestError as error:
        message = str(error).replace("max_tokens", max_tokens_field)
        param = max_tokens_field if error.param == "max_tokens" else error.param
        raise RequestError(message, param=param, code=error.code) from None
    return params


def handling_of(body: SamplingFields, caller: Caller) -> Handling:
    """How the engine shall treat the request.

    Raises:
        RequestError: an unknown service tier, or a priority out of bounds.
    """
    tier = "auto" if body.service_tier is None else body.service_tier
    if tier not in SERVICE_TIERS:
        raise RequestError(f"service_tier is {shown(tier)}; it may be {', '.join(SERVICE_TIERS)}", param="service_tier")
    priority = body.priority or 0
    check_int("priority", priority, -MAX_PRIORITY, MAX_PRIORITY, "lower goes first")
    return Handling(
        cache_namespace=caller.cache_namespace(body.cache_salt or ""),
        pin=pin_of(body),
        service=caller.service or SERVICE_TIERS[tier],
        priority=priority,
    )


def _biases(biases: dict[str, float]) -> dict[int, float]:
    """Biases by id: JSON has keys of text only.

    Raises:
        RequestError: a key is no integer, or names an id a second time.
    """
    by_id: dict[int, float] = {}
    for key, bias in biases.items():
        if not _ID.fullmatch(key) or int(key) in by_id:
            raise RequestError(
                f'logit_bias has the key {shown(key)}; each key must be another token id, such as "42"',
                param="logit_bias",
                code="invalid_type",
            )
        by_id[int(key)] = bias
    return by_id


Telling = Literal["never", "at the end", "always"]
"""When a stream tells its usage."""


def usage_telling(body: SamplingFields) -> Telling:
    """When a stream shall tell its usage.

    Raises:
        RequestError: options of a stream without a stream.
    """
    options = body.stream_options
    if options is None:
        return "never"
    if not body.stream:
        raise RequestError("stream_options needs stream: true", param="stream_options")
    if not options.include_usage:
        return "never"
    return "always" if options.continuous_usage_stats else "at the end"
