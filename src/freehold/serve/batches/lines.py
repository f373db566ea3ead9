"""Input files: every line is looked at before any of them runs."""

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from freehold.errors import FreeholdError, RequestError, shown
from freehold.serve import body as bodies
from freehold.serve.batches.batch_store import LinePlace
from freehold.serve.batches.schema import InputLine, LineFault

MAX_LINES = 50_000
MAX_FAULTS = 100
"""Told of one file; whoever has more has a fault of another kind."""
MAX_CUSTOM_ID_BYTES = 512
ENVELOPE_BYTES = 8 << 10
"""What a line may have beside the body of its request."""

_decoder = msgspec.json.Decoder(InputLine)


class InputFileError(FreeholdError):
    """An input file is of no use.

    Attributes:
        faults: what is wrong, at least one.
    """

    def __init__(self, faults: list[LineFault]) -> None:
        super().__init__(faults[0].message)
        self.faults = faults


def read_input(path: Path, endpoint: str, max_body_bytes: int) -> list[LinePlace]:
    """The lines of an input file. Empty ones count, but are left out.

    Args:
        endpoint: what all lines must ask.

    Raises:
        InputFileError: a line isn't a request to this endpoint, or names no id of its own; or there are none, or too
            many.
        OSError: the file can't be read.
    """
    faults: list[LineFault] = []
    places: list[LinePlace] = []
    numbers: dict[str, int] = {}
    for number, begin, text in _lines(path, max_body_bytes + ENVELOPE_BYTES):
        try:
            custom_id = _check(number, text, endpoint, max_body_bytes + ENVELOPE_BYTES)
            first = numbers.setdefault(custom_id, number)
            if first != number:
                raise RequestError(
                    f"custom_id {shown(custom_id)} is that of line {first} too; each must be another",
                    param="custom_id",
                    code="duplicate_custom_id",
                )
            places.append(LinePlace(number, begin, len(text), custom_id))
        except RequestError as error:
            faults.append(LineFault(code=error.code, message=str(error), line=number, param=error.param))
        if len(places) > MAX_LINES:
            many = f"the file holds more than {MAX_LINES} requests; split it"
            raise InputFileError([LineFault(code="too_many_requests", message=many)])
        if len(faults) == MAX_FAULTS:
            break
    if not faults and not places:
        faults.append(LineFault(code="empty_file", message="the file holds no request; write one a line"))
    if faults:
        raise InputFileError(faults)
    return places


def parse_line(text: bytes) -> InputLine:
    """A line that `read_input` has passed.

    Raises:
        RequestError: it has changed since.
    """
    return bodies.decode(text, _decoder)


def _lines(path: Path, max_bytes: int) -> Iterator[tuple[int, int, bytes]]:
    """Number, place and text of each line that isn't empty, without its end; of one that is too long, its beginning."""
    with path.open("rb") as file:
        begin = len(codecs.BOM_UTF8) if file.read(3) == codecs.BOM_UTF8 else 0
        file.seek(begin)
        number = 0
        while text := file.readline(max_bytes + 3):
            number += 1
            stripped = text.strip(b" \t\r\n")
            if stripped:
                yield number, begin + text.index(stripped[:1]), stripped
            begin += len(text) + (0 if text.endswith(b"\n") else _skip_line(file))


def _skip_line(file: BinaryIO) -> int:
    """Read to the end of the line; returns how many bytes that were."""
    num_bytes = 0
    while rest := file.readline(1 << 20):
        num_bytes += len(rest)
        if rest.endswith(b"\n"):
            break
    return num_bytes


def _check(number: int, text: bytes, endpoint: str, max_bytes: int) -> str:
    """The line's custom id.

    Raises:
        RequestError: it isn't a request to this endpoint.
    """
    if len(text) > max_bytes:
        raise RequestError(
            f"line {number} is longer than {max_bytes} bytes (--max-body-bytes); shorten it", code="line_too_long"
        )
    try:
        line = parse_line(text)
    except RequestError as error:
        raise RequestError(f"line {number}: {error}", param=error.param, code=error.code) from None
    if not 0 < len(line.custom_id.encode()) <= MAX_CUSTOM_ID_BYTES:
        raise RequestError(
            f"custom_id is {shown(line.custom_id)}; it must have 1 to {MAX_CUSTOM_ID_BYTES} bytes", param="custom_id"
        )
    if line.method != "POST":
        raise RequestError(f"method is {shown(line.method)}; it must be POST", param="method")
    if line.url != endpoint:
        raise RequestError(
            f"url is {shown(line.url)}; the batch is for {endpoint}", param="url", code="mismatched_endpoint"
        )
    if not bytes(line.body).startswith(b"{"):
        raise RequestError("body must be an object", param="body", code="invalid_type")
    return line.custom_id
