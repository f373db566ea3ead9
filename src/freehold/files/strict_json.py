"""JSON of model files: hostile until proved otherwise."""

import json
import re
from typing import Any

from freehold.errors import ModelFileError, shown

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse_json(raw: bytes, where: str) -> dict[str, Any]:
    """Parse a JSON object.

    Arguments:
        where: names the file in messages.

    Raises:
        ModelFileError: not UTF-8, not JSON, not an object, nested too deeply, a key that occurs twice in an object, or
            a string that holds half a surrogate pair and so is no text.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise ModelFileError(f"{where}: key {twice[:100]!r} occurs twice")
        return result

    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except UnicodeDecodeError:
        raise ModelFileError(f"{where} is not valid UTF-8") from None
    except RecursionError:
        raise ModelFileError(f"{where} is nested too deeply") from None
    except ValueError as error:
        raise ModelFileError(f"{where} is not valid JSON ({error}); download the file again") from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{where} is not a JSON object")
    if _SURROGATE_ESCAPE.search(raw):
        _refuse_half_characters(value, where)
    return value


def _refuse_half_characters(value: dict[str, Any], where: str) -> None:
    """Raise ModelFileError if a key or string can't be written as UTF-8."""
    left: list[Any] = [value]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            left += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            left += item
        elif isinstance(item, str):
            try:
                item.encode()
            except UnicodeEncodeError:
                raise ModelFileError(
                    f"{where}: the string {shown(item)} holds half a surrogate pair; write the whole character"
                ) from None
