"""Checks of single sampling parameters. Each names the field, its value and what is allowed."""

from collections.abc import Mapping
from typing import NoReturn

from freehold.errors import RequestError, shown

MAX_STOPS = 4
MAX_STOP_BYTES = 256


def check_float(name: str, value: object, smallest: float, largest: float, remedy: str) -> None:
    """Refuse what isn't a number from `smallest` to `largest`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        wrong_type(name, value, "a number")
    if not smallest <= value <= largest:
        raise RequestError(
            f"{name} is {shown(value)}; it must be between {smallest:g} and {largest:g} ({remedy})", param=name
        )


def check_int(name: str, value: object, smallest: int, largest: int, remedy: str) -> None:
    """Refuse what isn't an integer from `smallest` to `largest`."""
    if isinstance(value, bool) or not isinstance(value, int):
        wrong_type(name, value, "an integer")
    if not smallest <= value <= largest:
        raise RequestError(
            f"{name} is {shown(value)}; it must be between {smallest} and {largest} ({remedy})", param=name
        )


def check_stops(stop: object) -> None:
    """Refuse what aren't a few short strings, or one."""
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list | tuple):
        wrong_type("stop", stop, "a string or a list of strings")
    if len(stops) > MAX_STOPS:
        raise RequestError(f"stop has {len(stops)} strings; up to {MAX_STOPS} are allowed", param="stop")
    for position, text in enumerate(stops):
        if not isinstance(text, str):
            wrong_type(f"stop[{position}]", text, "a string", param="stop")
        if not text:
            raise RequestError(f"stop[{position}] is empty, which would stop everything; remove it", param="stop")
        try:
            size = len(text.encode("utf-8"))
        except UnicodeEncodeError:
            raise RequestError(
                f"stop[{position}] is {shown(text)}, which holds half a surrogate pair; send whole characters",
                param="stop",
                code="invalid_unicode",
            ) from None
        if size > MAX_STOP_BYTES:
            raise RequestError(f"stop[{position}] has {size} bytes; up to {MAX_STOP_BYTES} are allowed", param="stop")


def check_ids(name: str, ids: object, vocab_size: int, most: int) -> None:
    """Refuse what aren't up to `most` ids of the model's."""
    if not isinstance(ids, list | tuple | set | frozenset):
        wrong_type(name, ids, "a list of token ids")
    if len(ids) > most:
        raise RequestError(f"{name} has {len(ids)} ids; up to {most} are allowed", param=name)
    for token_id in ids:
        _check_id(name, token_id, vocab_size, "a list of token ids")


def check_biases(name: str, biases: object, vocab_size: int, most: int, largest: float) -> None:
    """Refuse what isn't a dictionary of up to `most` of the model's ids with numbers from -`largest` to `largest`."""
    if not isinstance(biases, Mapping):
        wrong_type(name, biases, "a dictionary of token ids and biases")
    if len(biases) > most:
        raise RequestError(f"{name} has {len(biases)} ids; up to {most} are allowed", param=name)
    for token_id, bias in biases.items():
        _check_id(name, token_id, vocab_size, "a dictionary of token ids and biases")
        if isinstance(bias, bool) or not isinstance(bias, int | float):
            wrong_type(f"{name}[{token_id}]", bias, "a number", param=name)
        if not -largest <= bias <= largest:
            raise RequestError(
                f"{name}[{token_id}] is {shown(bias)}; it must be between {-largest:g} and {largest:g} "
                f"({-largest:g} bans a token, {largest:g} all but forces it)",
                param=name,
            )


def wrong_type(name: str, value: object, wanted: str, *, param: str | None = None) -> NoReturn:
    """Refuse a value of another type than is `wanted`."""
    raise RequestError(f"{name} is {shown(value)}; {wanted} is needed", param=param or name, code="invalid_type")


def _check_id(name: str, token_id: object, vocab_size: int, wanted: str) -> None:
    if isinstance(token_id, bool) or not isinstance(token_id, int):
        wrong_type(name, token_id, wanted)
    if not 0 <= token_id < vocab_size:
        raise RequestError(
            f"{name} holds {shown(token_id)}; this model has token ids 0 to {vocab_size - 1}",
            param=name,
            code="token_id_out_of_range",
        )
