"""What users of the offline API give as prompts, conversations and parameters: taken apart and checked by type.

Python would take almost anything for a list of integers (``True``, ``1.9``, bytes), and the model would answer it.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import index
from typing import Any, SupportsIndex, TypeGuard, cast

from freehold.errors import RequestError, shown
from freehold.text.params import SamplingParams

Prompt = str | Sequence[int]
"""Text, or token ids that are taken as they are; integers and arrays of NumPy's as well."""

Chat = Sequence[Mapping[str, Any]]
"""Messages with role and content, rendered by the model's chat template."""

_NO_LISTS = (str, bytes, bytearray, memoryview, Mapping)


def _is_list(value: object) -> TypeGuard[Iterable[Any]]:
    """A list, tuple or other sequence of things, or an array of one dimension. Text and bytes are none."""
    if isinstance(value, _NO_LISTS):
        return False
    return isinstance(value, Sequence) or getattr(value, "ndim", 0) == 1


def is_chat(prompt: object) -> TypeGuard[Chat]:
    """Is it one conversation?"""
    return isinstance(prompt, list | tuple) and len(prompt) > 0 and isinstance(prompt[0], Mapping)


def as_chats(messages: object) -> Sequence[Chat]:
    """One or many conversations as many.

    Raises:
        RequestError: something else.
    """
    if is_chat(messages):
        return [messages]
    if not isinstance(messages, list | tuple):
        raise _wrong_type("messages", messages, "a list of messages, or a list of such lists")
    for position, chat in enumerate(messages):
        if not is_chat(chat):
            raise _wrong_type(f"messages[{position}]", chat, "a list of messages with role and content")
    return messages


def as_prompts(prompts: object) -> list[tuple[str, object]]:
    """One or many prompts as many, each with what messages call it.

    Raises:
        RequestError: neither text nor a list.
    """
    if isinstance(prompts, str):
        return [("prompts", prompts)]
    if getattr(prompts, "ndim", 1) > 1:
        prompts = list(cast(Iterable[object], prompts))  # an array of prompts of equal length
    if not _is_list(prompts):
        raise _wrong_type("prompts", prompts, "text, a list of token ids, or a list of either")
    items = list(prompts)
    if items and not isinstance(items[0], str) and not _is_list(items[0]):
        return [("prompts", items)]
    return [(f"prompts[{position}]", item) for position, item in enumerate(items)]


def token_ids(prompt: object, place: str) -> tuple[int, ...]:
    """A prompt that is given as ids.

    Arguments:
        place: what messages call it.

    Raises:
        RequestError: not a list of integers.
    """
    if not _is_list(prompt):
        raise _wrong_type(place, prompt, "text or a list of token ids")
    return tuple(_token_id(item, f"{place}[{position}]") for position, item in enumerate(prompt))


def _token_id(value: object, place: str) -> int:
    """An integer of Python's or NumPy's. True and False are none."""
    try:
        if not isinstance(value, bool):
            return index(cast(SupportsIndex, value))
    except TypeError:
        pass
    raise _wrong_type(place, value, "an integer (a token id; text is given as str)")


def _as_params(params: object, place: str) -> SamplingParams:
    if params is None:
        return SamplingParams()
    if not isinstance(params, SamplingParams):
        raise _wrong_type(place, params, "SamplingParams, such as SamplingParams(max_tokens=20),")
    return params


def one_each(params: object, num_prompts: int) -> list[SamplingParams]:
    """Parameters for each prompt.

    Raises:
        RequestError: no `SamplingParams`, or another number of them than prompts.
    """
    if not isinstance(params, list | tuple):
        return [_as_params(params, "params")] * num_prompts
    if len(params) != num_prompts:
        raise RequestError(f"{len(params)} params for {num_prompts} prompts; give one, or one each", param="params")
    return [_as_params(one, f"params[{position}]") for position, one in enumerate(params)]


def each(prompts: object, params: object) -> Iterator[tuple[object, SamplingParams]]:
    """Prompts from any iterable, each with its parameters: taken as they are asked for.

    Raises:
        RequestError: no iterable of prompts; or no `SamplingParams`, which of several may show only in the iteration.
    """
    if isinstance(prompts, _NO_LISTS) or not isinstance(prompts, Iterable):
        raise _wrong_type("prompts", prompts, "an iterable of prompts")
    if params is None or isinstance(params, SamplingParams) or not isinstance(params, Iterable):
        return zip(prompts, itertools.repeat(_as_params(params, "params")), strict=False)
    return _in_step(prompts, iter(params))


def _in_step(prompts: Iterable[object], params: Iterator[object]) -> Iterator[tuple[object, SamplingParams]]:
    for position, prompt in enumerate(prompts):
        try:
            one = next(params)
        except StopIteration:
            raise RequestError(
                f"params end before prompts[{position}]; give one, or one each", param="params"
            ) from None
        yield prompt, _as_params(one, f"params[{position}]")


def _wrong_type(place: str, value: object, wanted: str) -> RequestError:
    param = place.partition("[")[0]
    return RequestError(f"{place} is {shown(value)}; {wanted} is needed", param=param, code="invalid_type")
