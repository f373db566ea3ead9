"""What both surfaces read alike from a body: sampling parameters and the form of the answer."""

from typing import Any

from freehold.errors import RequestError
from freehold.serve.schema import SamplingFields
from freehold.text.params import SamplingParams

_SAME_NAMES = (
    "temperature", "top_p", "top_k", "min_p", "n", "seed", "stop", "stop_token_ids", "ignore_eos",
)  # fmt: skip


def sampling_params(
    body: SamplingFields, *, vocab_size: int, max_tokens: int | None, max_tokens_field: str = "max_tokens"
) -> SamplingParams:
    """Checked parameters; what the body leaves out or sets to null takes its default.

    Args:
        max_tokens_field: the field that `max_tokens` came from.

    Raises:
        RequestError: a value out of bounds, by name.
    """
    given: dict[str, Any] = {name: value for name in _SAME_NAMES if (value := getattr(body, name)) is not None}
    params = SamplingParams(max_tokens=max_tokens, **given)
    try:
        params.validate(vocab_size=vocab_size)
    except RequestError as error:
        if error.param != "max_tokens" or max_tokens_field == "max_tokens":
            raise
        message = str(error).replace("max_tokens", max_tokens_field)
        raise RequestError(message, param=max_tokens_field, code=error.code) from None
    return params


def wants_usage(body: SamplingFields) -> bool:
    """Whether a stream shall end with its usage.

    Raises:
        RequestError: options of a stream without a stream.
    """
    if body.stream_options is None:
        return False
    if not body.stream:
        raise RequestError("stream_options needs stream: true", param="stream_options")
    return body.stream_options.include_usage
