"""JSON of model files: hostile until proved otherwise."""

import json
from typing import Any

from freehold.errors import ModelFileError


def parse_json(raw: bytes, where: str) -> dict[str, Any]:
    """Parse a JSON object.

    Arguments:
        where: names the file in messages.

    Raises:
        ModelFileError: not UTF-8, not JSON, not an object, nested too deeply, or a key that occurs twice in an object.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise ModelFileError(f"{where}: key {twice[:100]!r} occurs twice.")
        return result

    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except UnicodeDecodeError:
        raise ModelFileError(f"{where} is not valid UTF-8.") from None
    except RecursionError:
        raise ModelFileError(f"{where} is nested too deeply.") from None
    except ValueError as error:
        raise ModelFileError(f"{where} is not valid JSON ({error}); download the file again.") from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{where} is not a JSON object.")
    return value
