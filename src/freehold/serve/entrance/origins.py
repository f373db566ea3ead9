"""Which web pages may use the server: those that it serves itself, and those that ``--allowed-origins`` names.

Browsers say in ``Origin`` where a script came from. What comes from elsewhere is refused before anything is done: that
a browser would keep the answer from the page is no help, as the work would be done.
"""

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from freehold.serve.entrance.record import record_of
from freehold.serve.failure import HttpError, refusal

ANY_ORIGIN = "*"
PREFLIGHT_S = 600
"""So long may a browser remember what it was told."""

_SHOWN_HEADERS = "retry-after, x-request-id, x-seed, x-ignored-fields, " + ", ".join(
    f"x-ratelimit-{what}-{of}" for what in ("limit", "remaining", "reset") for of in ("requests", "tokens")
)


class Origins:
    """Wraps the gate, so that pages can read why they were refused."""

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        """
        Args:
            allowed: such as ``https://example.org``, or `ANY_ORIGIN`.
        """
        self._app = app
        self._allowed = frozenset(origin.lower().rstrip("/") for origin in allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        origins = headers.getlist("origin")
        if not origins or (len(origins) == 1 and _is_own(origins[0], headers)):
            await self._app(scope, receive, send)
            return
        origin = origins[0]
        if len(origins) > 1 or not self._allowed & {origin.lower(), ANY_ORIGIN}:
            error = HttpError(
                403,
                f"pages of {origin[:100]!a} may not use this server; name them with --allowed-origins if they shall",
                code="origin_not_allowed",
            )
            await refusal(error, record_of(scope))(scope, receive, send)
            return

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered = MutableHeaders(scope=message)
                answered["access-control-allow-origin"] = origin
                answered["access-control-expose-headers"] = _SHOWN_HEADERS
                answered.add_vary_header("Origin")
            await send(message)

        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await _preflight(headers)(scope, receive, send_on)  # which browsers send without a key
        else:
            await self._app(scope, receive, send_on)


def _is_own(origin: str, headers: Headers) -> bool:
    """It is the address that the request was sent to. The scheme may differ: something in front may speak TLS."""
    try:
        return urlsplit(origin).netloc.lower() == headers.get("host", "").lower() != ""
    except ValueError:
        return False


def _preflight(headers: Headers) -> Response:
    return Response(
        status_code=204,
        headers={
            "access-control-allow-methods": "GET, POST, DELETE",
            "access-control-allow-headers": headers.get("access-control-request-headers", ""),
            "access-control-max-age": str(PREFLIGHT_S),
        },
    )
