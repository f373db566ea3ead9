"""Requests that come from within: the same code answers them as those that come over HTTP, without a socket."""

import asyncio
import logging
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Scope

from freehold.serve.entrance.caller import SCOPE_KEY, Caller
from freehold.serve.entrance.guard import write_line
from freehold.serve.entrance.record import CLIENT_LEFT, RECORD_KEY, Record

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a request was answered with, whole.

    Attributes:
        headers: by lower-case name.
    """

    status: int
    headers: dict[str, str]
    body: bytes


async def post(app: ASGIApp, path: str, body: bytes, *, caller: Caller, record: Record) -> Reply:
    """Send JSON to one of the application's routes. Cancelling it is what a client does that leaves.

    Args:
        app: the application inside its guard, which takes the caller at its word; a gate asks whether its key is valid.
        record: filled in as for the access log.
    """
    scope = _scope(path, len(body))
    scope[SCOPE_KEY], scope[RECORD_KEY] = caller, record
    unread = [body]
    start: Message = {}
    parts: list[bytes] = []

    async def receive() -> Message:
        if not unread:
            await asyncio.get_running_loop().create_future()  # nobody leaves but by being cancelled
        return {"type": "http.request", "body": unread.pop(), "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            start.update(message)
        else:
            parts.append(message.get("body", b""))

    try:
        await app(scope, receive, send)
    except Exception:
        if not start:
            raise
        _log.exception("request %s failed", record.request_id)  # it was answered 500
    finally:
        record.status = start.get("status", CLIENT_LEFT)
        write_line(scope, record)
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in start.get("headers", ())}
    return Reply(start["status"], headers, b"".join(parts))


def _scope(path: str, num_bytes: int) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"content-length", str(num_bytes).encode())],
        "client": None,
        "server": None,
    }
