"""The door: every request gets an id, a check of the host it was sent to, and one line in the access log."""

import logging
import re
import time
import uuid
from ipaddress import ip_address

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from freehold.logs import with_fields
from freehold.serve.entrance.record import RECORD_KEY, UNREAD_KEY, Record, no_bytes
from freehold.serve.failure import HttpError, refusal
from freehold.serve.messages.failure import is_of_messages

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1", "0:0:0:0:0:0:0:1"})

_access = logging.getLogger("freehold.access")
_log = logging.getLogger(__name__)


class Guard:
    """Wraps the application.

    On a loopback address only loopback names are accepted as Host: a web page that a browser was made to resolve to
    127.0.0.1 (DNS rebinding) sends its own.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        """
        Args:
            host: the address that the server listens on.
        """
        self._app = app
        self._hosts = _LOOPBACK_NAMES | {host.lower()} if is_loopback(host) else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _ID.fullmatch(given) else f"req-{uuid.uuid4().hex}"
        record = Record(request_id, scope.get(UNREAD_KEY, no_bytes))
        scope[RECORD_KEY] = record

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                answered = MutableHeaders(scope=message)
                answered["x-request-id"] = record.request_id
                if record.ignored_fields:
                    answered["x-ignored-fields"] = record.ignored
                if is_of_messages(scope["path"]):
                    answered["request-id"] = record.request_id  # Anthropic's name for it
            await send(message)

        try:
            if len(headers.getlist("host")) > 1:
                error = HttpError(400, "the request has several Host headers; send one", code="invalid_header")
                await refusal(error, record)(scope, receive, send_on)
            elif self._hosts is not None and _host_name(headers.get("host", "")) not in self._hosts:
                error = HttpError(
                    403,
                    f"the Host header {headers.get('host', '')[:100]!a} isn't a name of this machine's own; "
                    "listen on another address with --host to be reached under other names",
                    code="host_not_allowed",
                )
                await refusal(error, record)(scope, receive, send_on)
            else:
                await self._app(scope, receive, send_on)
        except Exception:
            # The application has answered 500 by now, without a word of what happened.
            _log.exception("request %s failed", record.request_id)
        finally:
            write_line(scope, record)


def is_loopback(host: str) -> bool:
    """Whether an address or name is this machine's own."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _host_name(host: str) -> str:
    """The name in a Host header, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def write_line(scope: Scope, record: Record) -> None:
    """The line of a request: never its prompt, its answer, its query or its headers."""
    level = logging.INFO if scope["path"].startswith("/v1/") else logging.DEBUG
    if not _access.isEnabledFor(level):
        return
    parts = [record.request_id, scope["method"], ascii(scope["path"][:200])[1:-1], str(record.status)]
    total_s = time.monotonic() - record.started_s
    fields: dict[str, str | int | float] = {
        "request_id": record.request_id,
        "method": scope["method"],
        "path": scope["path"][:200],
        "status": record.status,
        "total_s": round(total_s, 4),
    }
    if record.notes is not None:
        fields["trace_id"] = record.notes.trace_id
    if record.key_id:
        parts.append(f"key={record.key_id}")
        fields["key"] = record.key_id
    if record.num_prompt_tokens:
        parts.append(f"prompt={record.num_prompt_tokens} output={record.num_output_tokens}")
        fields |= {"prompt_tokens": record.num_prompt_tokens, "output_tokens": record.num_output_tokens}
        fields |= {"cached_tokens": record.num_cached_tokens, "reasoning_tokens": record.num_reasoning_tokens}
    if record.ignored_fields:
        parts.append(f"ignored={record.ignored}")
        fields["ignored"] = record.ignored
    if record.refusal:
        parts.append(f"refused={record.refusal}")
        fields["refused"] = record.refusal
    if record.outcome:
        parts.append(f"outcome={record.outcome}")
        fields["outcome"] = record.outcome
    if record.first_s is not None:
        parts.append(f"first={record.first_s - record.started_s:.3f}s")
        fields["first_s"] = round(record.first_s - record.started_s, 4)
    parts.append(f"total={total_s:.3f}s")
    _access.log(level, " ".join(parts), extra=with_fields(**fields))
