"""What servers say when they refuse, as a sentence that tells what to do."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from freehold.errors import shown
from freehold.foreign_json import NOT_JSON

_MOST_TEXT = 200


def error_message(error: Any) -> str:
    """The text in what a server calls an error."""
    try:
        return str(error.get("message", error) if isinstance(error, dict) else error)
    except RecursionError:
        return "an error that is nested too deeply to be shown"


def message_in(body: bytes) -> str:
    """The message in an error's body, whichever shape the server gives it; "" if there is none."""
    try:
        answer = msgspec.json.decode(body)
    except NOT_JSON:
        return ""
    if not isinstance(answer, dict):
        return ""
    return error_message(next((answer[key] for key in ("error", "message", "detail") if answer.get(key)), ""))


def refusal(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> str:
    """A refused request in one line: its status, and what the server says unless that is a page or nothing.

    Args:
        headers: of the answer, by lower-case name.
    """
    text = body[:_MOST_TEXT].decode(errors="replace").strip()
    said = message_in(body) or ("" if text.startswith(("<", "{", "[")) else " ".join(text.split()))
    said = said if len(said) <= _MOST_TEXT else f"{said[:_MOST_TEXT]}…"
    return f"HTTP {status}: {said or _phrase(status)}{_advice(status, headers or {})}"


def _advice(status: int, headers: Mapping[str, str]) -> str:
    """Where a redirection leads, and how long a server that is busy wants to be left alone."""
    if 300 <= status < 400 and "location" in headers:
        return f"; it leads to {shown(headers['location'])}, and none is followed: name that server with --base-url"
    if "retry-after" in headers:
        return f"; Retry-After: {headers['retry-after'][:_MOST_TEXT]}"
    return ""


def remedy(status: int | None, model: str, listed: tuple[str, ...], *, has_fields: bool) -> str:
    """What to do about a refused request, to be put behind its message; "" if nobody knows.

    Args:
        status: of the answer; None if there was none.
        model: that was asked for.
        listed: models that the server lists.
        has_fields: requests carried fields of ``--extra-body``.
    """
    if status == HTTPStatus.UNAUTHORIZED:
        return "; put the server's key into FREEHOLD_API_KEY"
    if status == HTTPStatus.NOT_FOUND and listed and model not in listed:
        return f"; name one that the server lists with --model: {', '.join(listed[:5])}"
    if status == HTTPStatus.NOT_FOUND:
        return "; check --base-url, --endpoint and --backend"
    if status in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY) and has_fields:
        return "; further fields come from --extra-body or --temperature"
    return ""


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "no reason given"
