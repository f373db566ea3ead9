"""The ``Range`` header of requests for a file's bytes (RFC 9110, section 14.2)."""

import re

from freehold.serve.failure import HttpError

MAX_RANGES = 16

_RANGE = re.compile(r"([0-9]{1,19})-([0-9]{0,19})|-([0-9]{1,19})")


def satisfiable(header: str, num_bytes: int) -> str | None:
    """The ranges of a header that a file has; None if all of the file is to be sent: the header is malformed, which
    servers ignore, or asks for more parts than is sensible.

    Raises:
        HttpError: 416, the file has none of them.
    """
    unit, _, text = header.partition("=")
    parts = [part.strip(" \t") for part in text.split(",")]
    matches = [_RANGE.fullmatch(part) for part in parts]
    if unit.strip().lower() != "bytes" or len(parts) > MAX_RANGES:
        return None
    kept: list[str] = []
    for part, match in zip(parts, matches, strict=True):
        if match is None or (match[2] and int(match[1]) > int(match[2])):
            return None
        if int(match[3]) > 0 if match[3] else int(match[1]) < num_bytes:
            kept.append(part)
    if not kept or not num_bytes:
        raise HttpError(
            416, f"the file has {num_bytes} bytes, and none of those asked for", code="range_not_satisfiable"
        )
    return f"bytes={', '.join(kept)}"
