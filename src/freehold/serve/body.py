"""From the bytes of a request to a checked struct, or to an error that names the field."""

import json
import re
from collections import Counter
from itertools import accumulate
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from freehold.errors import RequestError
from freehold.serve.entrance.record import record_of
from freehold.serve.failure import HttpError
from freehold.serve.lanes import LONG_BYTES, TextLanes
from freehold.serve.reply import ClientLeftError, while_connected
from freehold.serve.schema import Body
from freehold.serve.wrong_field import wrong_field

MAX_DEPTH = 64
_SHOWN_CHARACTERS = 60
_CHARSETS = frozenset({"utf-8", "utf8", "us-ascii"})

_BRACKETS_ALIKE = bytes.maketrans(b"{}", b"[]")
_NEITHER_BRACKET_NOR_QUOTE = bytes(set(range(256)) - set(b'[]{}"'))
_STEPS = bytes.maketrans(b"[]", b"\x02\x00")
_SLICE = 1 << 15
"""Bytes looked at between two moments at which another thread may run."""

_HALF_PAIR = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)
_AT = re.compile(r"\(byte (?P<at>[0-9]+)\)")
_NO_NUMBER = re.compile(rb"NaN|Infinity")
_FIELD_BEFORE = re.compile(rb'"(?P<name>[a-z_]{1,40})"[ \t\r\n]*:[ \t\r\n]*-?\Z')

_TopLevel = msgspec.json.Decoder(dict[str, msgspec.Raw])
_Anything = msgspec.json.Decoder()

S = TypeVar("S", bound=Body)


async def read(request: Request, max_bytes: int) -> bytes:
    """The body of a JSON request.

    Raises:
        HttpError: 415 if it isn't declared as plain JSON in UTF-8, 413 if it is longer than `max_bytes`.
        ClientLeftError: the connection ended before the body did.
    """
    _check_declared(request)
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > max_bytes:
        raise _too_large(max_bytes)
    chunks: list[bytes] = []
    num_bytes = 0
    try:
        async for chunk in request.stream():
            num_bytes += len(chunk)
            if num_bytes > max_bytes:
                raise _too_large(max_bytes)
            chunks.append(chunk)
    except ClientDisconnect:
        raise ClientLeftError("the connection ended before the body did") from None
    return b"".join(chunks)


async def receive(
    request: Request, max_bytes: int, lanes: TextLanes, decoder: msgspec.json.Decoder[S]
) -> tuple[S, int]:
    """The checked struct in a request's body, and the body's bytes. Long bodies are decoded in their lane.

    Raises:
        as `read` and `decode`.
    """
    body = await read(request, max_bytes)
    is_strict = request.app.state.service.config.unknown_fields == "refuse"
    strangers = None if is_strict else record_of(request.scope).ignored_fields
    if len(body) < LONG_BYTES:
        return decode(body, decoder, strangers), len(body)
    return await while_connected(request.receive, lanes.run(len(body), decode, body, decoder, strangers)), len(body)


def decode(body: bytes, decoder: msgspec.json.Decoder[S], strangers: list[str] | None = None) -> S:
    """Check a body against a struct.

    Args:
        strangers: gets the names of unknown fields and of those that aren't supported; None refuses them.

    Raises:
        RequestError: not JSON, a wrong type, a missing field, or a field that is unknown, not supported or there twice.
    """
    _check_text(body)
    _check_depth(body)
    try:
        decoded = decoder.decode(body)
        fields = _TopLevel.decode(body)
    except msgspec.ValidationError as error:
        raise wrong_field(str(error), body, decoder.type) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _malformed(str(error), body) from None
    _check_names(body)
    for name in fields.keys() - set(decoded.__struct_fields__):
        try:
            _check_stranger(decoded, name, fields[name])
        except RequestError:
            if strangers is None:
                raise
            strangers.append(name)
    return decoded


def _check_declared(request: Request) -> None:
    """Refuse what says that it is anything but JSON in UTF-8, as it is."""
    declared = request.headers.getlist("content-type")
    if len(declared) > 1:
        raise HttpError(400, "the request has several Content-Type headers; send one", code="invalid_header")
    kind, *parameters = (part.strip().lower() for part in (declared or [""])[0].split(";"))
    if kind != "application/json":
        shown = kind[:_SHOWN_CHARACTERS] or "no content type"
        raise HttpError(415, f"the body was sent as {shown!r}; send Content-Type: application/json")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "charset" and value.strip().strip('"') not in _CHARSETS:
            shown = value[:_SHOWN_CHARACTERS]
            raise HttpError(415, f"the body was sent in the charset {shown!r}; JSON is UTF-8")
    for encoding in request.headers.getlist("content-encoding"):
        if encoding.strip().lower() not in ("", "identity"):
            shown = encoding[:_SHOWN_CHARACTERS]
            raise HttpError(415, f"the body was sent with Content-Encoding {shown!r}; send it as it is")


def _check_text(body: bytes) -> None:
    """Refuse bytes and escapes that are no text, also where no struct would look at them."""
    try:
        str(body, "utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(
            f"the body is not UTF-8 (byte 0x{body[error.start]:02X} at {error.start}); send JSON in UTF-8",
            code="invalid_unicode",
        ) from None
    # An escaped backslash doesn't begin an escape.
    if b"\\u" in body and (half := _HALF_PAIR.search(body.replace(rb"\\", b"  "))):
        shown = half[0][:6].decode()
        raise RequestError(
            f"the body holds half a surrogate pair ({shown} at byte {half.start()}), which is no valid Unicode text; "
            "send whole characters",
            code="invalid_unicode",
        )


def _check_depth(body: bytes) -> None:
    """Refuse deep nesting. Takes time in proportion to the body, whatever it holds."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    marks = body.replace(rb"\\", b"").replace(rb"\"", b"").translate(_BRACKETS_ALIKE, _NEITHER_BRACKET_NOR_QUOTE)
    depth, is_in_string = 0, False
    for begin in range(0, len(marks), _SLICE):
        parts = marks[begin : begin + _SLICE].split(b'"')
        steps = b"".join(parts[is_in_string::2]).translate(_STEPS)
        is_in_string ^= len(parts) % 2 == 0
        depths = list(accumulate((step - 1 for step in steps), initial=depth))
        if max(depths) > MAX_DEPTH:
            raise RequestError(f"the body is nested more than {MAX_DEPTH} levels deep", code="too_deep")
        depth = depths[-1]


def _check_object(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        field = name[:_SHOWN_CHARACTERS]
        raise RequestError(f"{field} stands twice in one object; send it once", param=field, code="duplicate_field")


# Of numbers of any length, nothing but that they are some is wanted.
_Names = json.JSONDecoder(object_pairs_hook=_check_object, parse_int=bool, parse_float=bool)


def _check_names(body: bytes) -> None:
    """Refuse valid JSON in which an object has a name twice: readers differ in which of the two they take."""
    _Names.decode(str(body, "utf-8"))


def _check_stranger(decoded: Body, name: str, raw: msgspec.Raw) -> None:
    """Refuse a field that the struct hasn't, unless it asks for nothing."""
    if name in decoded.ignored or bytes(raw).strip() == b"null":
        return
    if name not in decoded.neutral:
        shown = repr(name[:_SHOWN_CHARACTERS])
        raise RequestError(f"unknown field {shown}; remove it", param=name[:_SHOWN_CHARACTERS], code="unknown_field")
    try:
        value = _Anything.decode(raw)
    except msgspec.DecodeError:
        value = ...  # out of range, so certainly not neutral
    if not any(_same(value, neutral) for neutral in decoded.neutral[name]):
        accepted = " or ".join(msgspec.json.encode(neutral).decode() for neutral in (*decoded.neutral[name], None))
        raise RequestError(
            f"{name} is not supported here; remove it or send {accepted}", param=name, code="unsupported"
        )


def _same(value: Any, neutral: Any) -> bool:
    """Equality of JSON values: true is not 1."""
    return isinstance(value, bool) == isinstance(neutral, bool) and bool(value == neutral)


def _malformed(text: str, body: bytes) -> RequestError:
    """For what is no JSON. Some clients' encoders write NaN and Infinity, which JSON doesn't have."""
    if (place := _AT.search(text)) and (word := _NO_NUMBER.match(body, at := int(place["at"]))):
        field = _FIELD_BEFORE.search(body[max(0, at - 80) : at])
        name = field["name"].decode() if field else None
        what = name or f"the body at byte {at}"
        message = f"{what} is {word[0].decode()}, which is no number in JSON; send a finite number"
        return RequestError(message, param=name, code="invalid_json")
    return RequestError(f"the body is not valid JSON: {text}", code="invalid_json")


def _too_large(max_bytes: int) -> HttpError:
    return HttpError(413, f"the body is larger than {max_bytes} bytes (--max-body-bytes)")
