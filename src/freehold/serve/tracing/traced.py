"""The part of the application that has requests traced: those that generate, over HTTP or from a batch."""

from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from freehold.observe import genai
from freehold.serve.endpoint import Endpoint
from freehold.serve.entrance.record import record_of
from freehold.serve.tracing.tracing import Tracing


class Traced:
    """Wraps the gate."""

    def __init__(self, app: ASGIApp, tracing: Tracing, endpoints: Iterable[Endpoint]) -> None:
        """
        Args:
            endpoints: those that generate are traced.
        """
        self._app = app
        self._tracing = tracing
        self._needs = {e.path: e.needs for e in endpoints if e.needs in genai.OPERATIONS and e.events}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        needs = self._needs.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if needs is None:
            await self._app(scope, receive, send)
            return
        record = record_of(scope)
        self._tracing.begin(needs, scope["path"], scope, record)
        try:
            await self._app(scope, receive, send)
        finally:
            self._tracing.end(record)
