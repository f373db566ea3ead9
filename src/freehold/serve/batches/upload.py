"""Uploads: ``multipart/form-data``, written to disk as it comes."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from starlette.requests import ClientDisconnect, Request

from freehold.errors import RequestError, shown
from freehold.serve.failure import HttpError
from freehold.serve.reply import ClientLeftError

MAX_FIELD_BYTES = 1 << 10
"""Of each field but the file."""
MAX_EXTRA_BYTES = 64 << 10
"""Of all that an upload has beside the file's bytes."""
_WRITE_BYTES = 1 << 20
_FIELDS = ("purpose", "file", "expires_after[anchor]", "expires_after[seconds]")


@dataclass(slots=True)
class Form:
    """What an upload held beside the file's bytes."""

    filename: str = ""
    fields: dict[str, str] = field(default_factory=dict)
    has_file: bool = False


class _Parts:
    """Takes what the parser finds: names and values of headers, pieces of parts.

    Attributes:
        form: as far as it is known.
        pieces: of the file, not written yet.
    """

    def __init__(self) -> None:
        self.form = Form()
        self.pieces: list[bytes] = []
        self._header = (bytearray(), bytearray())
        self._name = ""
        self._value = bytearray()
        self.has_ended = False

    def callbacks(self) -> dict[str, object]:
        """For the parser."""
        return {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_headers,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_end": self._end_all,
        }

    def _begin(self) -> None:
        self._name = ""
        self._value.clear()

    def _end_header(self) -> None:
        from python_multipart.multipart import parse_options_header

        name, value = bytes(self._header[0]).lower(), bytes(self._header[1])
        self._header = (bytearray(), bytearray())
        if name == b"content-disposition":
            options = parse_options_header(value)[1]
            self._name = options.get(b"name", b"").decode("utf-8", "replace")
            if self._name == "file":
                self.form.filename = options.get(b"filename", b"").decode("utf-8", "replace")

    def _end_headers(self) -> None:
        if self._name not in _FIELDS:
            raise RequestError(
                f"unknown field {shown(self._name)}; an upload has purpose, file and expires_after",
                param=self._name[:100],
                code="unknown_field",
            )
        if self._name in self.form.fields or (self._name == "file" and self.form.has_file):
            raise RequestError(f"{self._name} comes twice; send it once", param=self._name)
        self.form.has_file |= self._name == "file"

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._name == "file":
            self.pieces.append(data[start:end])
            return
        self._value += data[start:end]
        if len(self._value) > MAX_FIELD_BYTES:
            raise RequestError(f"{self._name} is longer than {MAX_FIELD_BYTES} bytes", param=self._name)

    def _end(self) -> None:
        if self._name != "file":
            self.form.fields[self._name] = self._value.decode("utf-8", "replace")

    def _end_all(self) -> None:
        self.has_ended = True


async def receive(request: Request, path: Path, max_file_bytes: int) -> Form:
    """Write an upload's file to `path`, and synchronize it with the disk. If this raises, nothing is left there.

    Raises:
        RequestError: it isn't a form, or a field is unknown, missing or too long.
        HttpError: 413, the file is larger than `max_file_bytes`; 415, another type; 507, the disk is full.
        ClientLeftError: the connection ended before the body did.
    """
    done = False
    try:
        with path.open("xb") as file:
            form = await _receive(request, file, max_file_bytes)
            await asyncio.to_thread(_sync, file)
        done = True
    except OSError as error:
        raise disk_error(error) from None
    finally:
        if not done:
            with suppress(OSError):
                path.unlink(missing_ok=True)
    return form


def disk_error(error: OSError) -> HttpError:
    """What a client is told whose upload the disk didn't take."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return HttpError(507, "the server's disk is full; try again when there is room", code="disk_full")
    return HttpError(500, "the server can't write the file; its log says why", code="disk_error")


async def _receive(request: Request, file: BinaryIO, max_file_bytes: int) -> Form:
    # Only uploads need it.
    from python_multipart.exceptions import MultipartParseError
    from python_multipart.multipart import MultipartParser

    parts = _Parts()
    parser = MultipartParser(_boundary(request), parts.callbacks())  # type: ignore[arg-type]
    num_file_bytes = num_bytes = 0
    async for chunk in _chunks(request):
        num_bytes += len(chunk)
        try:
            parser.write(chunk)
        except MultipartParseError as error:
            raise RequestError(f"the body is no valid form: {error}", code="invalid_form") from None
        num_file_bytes += sum(map(len, parts.pieces))
        if num_file_bytes > max_file_bytes:
            raise HttpError(413, f"the file is larger than {max_file_bytes} bytes (--max-file-bytes)", param="file")
        if num_bytes - num_file_bytes > MAX_EXTRA_BYTES:
            raise HttpError(413, f"the form has more than {MAX_EXTRA_BYTES} bytes beside its file")
        if parts.pieces:
            pieces, parts.pieces = parts.pieces, []
            await asyncio.to_thread(file.writelines, pieces)
    if not parts.has_ended:
        raise RequestError("the form ends too early; send it whole", code="invalid_form")
    if not parts.form.has_file:
        raise RequestError("file is missing; send the file's bytes in this field", param="file", code="missing_field")
    return parts.form


def _boundary(request: Request) -> bytes:
    """What separates the parts.

    Raises:
        HttpError: 415, it is no form.
        RequestError: the header names no boundary.
    """
    from python_multipart.multipart import parse_options_header

    kind, options = parse_options_header(request.headers.get("content-type"))
    if kind != b"multipart/form-data":
        raise HttpError(415, f"the body was sent as {shown(kind.decode('latin-1'))}; send a form, multipart/form-data")
    boundary = options.get(b"boundary", b"")
    if not 0 < len(boundary) <= 200:
        raise RequestError("Content-Type names no boundary of the form's parts", code="invalid_form")
    return boundary


async def _chunks(request: Request) -> AsyncIterator[bytes]:
    """The body, in pieces that are worth a trip to the disk."""
    gathered: list[bytes] = []
    num_bytes = 0
    try:
        async for chunk in request.stream():
            gathered.append(chunk)
            num_bytes += len(chunk)
            if num_bytes >= _WRITE_BYTES:
                yield b"".join(gathered)
                gathered, num_bytes = [], 0
    except ClientDisconnect:
        raise ClientLeftError("the connection ended before the body did") from None
    yield b"".join(gathered)


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
