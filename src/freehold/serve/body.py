"""From the bytes of a request to a checked struct, or to an error that names the field."""

import re
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from freehold.errors import RequestError
from freehold.serve.failure import HttpError
from freehold.serve.schema import IGNORED, NEUTRAL

MAX_DEPTH = 64
_SHOWN_CHARACTERS = 60

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")
_PLACE = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")

_TopLevel = msgspec.json.Decoder(dict[str, msgspec.Raw])
_Anything = msgspec.json.Decoder()

S = TypeVar("S", bound=msgspec.Struct)


async def read(request: Request, max_bytes: int) -> bytes:
    """The body of a JSON request.

    Raises:
        HttpError: 415 if it isn't declared as JSON, 413 if it is longer than `max_bytes`.
    """
    declared = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if declared != "application/json":
        shown = declared[:_SHOWN_CHARACTERS] or "no content type"
        raise HttpError(415, f"the body was sent as {shown!r}; send Content-Type: application/json")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > max_bytes:
        raise _too_large(max_bytes)
    chunks: list[bytes] = []
    num_bytes = 0
    async for chunk in request.stream():
        num_bytes += len(chunk)
        if num_bytes > max_bytes:
            raise _too_large(max_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


def decode(body: bytes, decoder: msgspec.json.Decoder[S]) -> S:
    """Check a body against a struct.

    Raises:
        RequestError: not JSON, a wrong type, a missing field, or a field that is unknown or not supported.
    """
    _check_depth(body)
    try:
        decoded = decoder.decode(body)
        fields = _TopLevel.decode(body)
    except msgspec.ValidationError as error:
        raise _named(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"the body is not valid JSON: {error}", code="invalid_json") from None
    for name in fields.keys() - set(decoded.__struct_fields__):
        _check_stranger(name, fields[name])
    return decoded


def _check_depth(body: bytes) -> None:
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", body)):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise RequestError(f"the body is nested more than {MAX_DEPTH} levels deep", code="too_deep")


def _check_stranger(name: str, raw: msgspec.Raw) -> None:
    """Refuse a field that no struct has, unless it asks for nothing."""
    if name in IGNORED or bytes(raw).strip() == b"null":
        return
    if name not in NEUTRAL:
        shown = repr(name[:_SHOWN_CHARACTERS])
        raise RequestError(f"unknown field {shown}; remove it", param=name[:_SHOWN_CHARACTERS], code="unknown_field")
    try:
        value = _Anything.decode(raw)
    except msgspec.DecodeError:
        value = ...  # out of range, so certainly not neutral
    if not any(_same(value, neutral) for neutral in NEUTRAL[name]):
        accepted = " or ".join(msgspec.json.encode(neutral).decode() for neutral in (*NEUTRAL[name], None))
        raise RequestError(
            f"{name} is not supported here; remove it or send {accepted}", param=name, code="unsupported"
        )


def _same(value: Any, neutral: Any) -> bool:
    """Equality of JSON values: true is not 1."""
    return isinstance(value, bool) == isinstance(neutral, bool) and bool(value == neutral)


def _named(text: str) -> RequestError:
    """A validation error with the field in `param`, as in ``messages[0].content``."""
    match = _PLACE.fullmatch(text)
    what, path = (match["what"], match["path"] or "") if match else (text, "")
    for pattern, code, remark in (
        (_MISSING, "missing_field", "is missing"),
        (_UNKNOWN, "unknown_field", "is an unknown field; remove it"),
    ):
        if inner := pattern.fullmatch(what):
            param = f"{path}.{inner['name']}" if path else inner["name"]
            return RequestError(f"{param} {remark}", param=param, code=code)
    subject = path or "the body"
    return RequestError(f"{subject}: {what[:1].lower()}{what[1:]}", param=path or None, code="invalid_type")


def _too_large(max_bytes: int) -> HttpError:
    return HttpError(413, f"the body is larger than {max_bytes} bytes (--max-body-bytes)")
