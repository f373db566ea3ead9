"""The gate: who may go on to the application. Closed by default: a path that nobody listed is an administrator's."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Message, Receive, Scope, Send

from freehold.access.keys import KeyId
from freehold.access.meter import Meter, Visit
from freehold.access.usage import Account, Outcome, Usage
from freehold.errors import FreeholdError
from freehold.serve.endpoint import ADMIN, ANY_KEY, NO_KEY
from freehold.serve.entrance.caller import SCOPE_KEY, caller_of
from freehold.serve.entrance.credentials import CHALLENGE, secret_in, unauthorized
from freehold.serve.entrance.record import CLIENT_LEFT, Record, record_of
from freehold.serve.failure import HttpError, refusal
from freehold.serve.service import Service

_IN_LEDGER = frozenset({"chat", "completions", "messages"})
"""Endpoints whose requests stand in the ledger of usage."""

_VISIT = "freehold.visit"


class Gate:
    """Wraps the application: every request is some key's, and takes its place in the key's limits. Only
    probes and the live page's files need no key."""

    def __init__(self, app: Starlette, service: Service, needs: Mapping[str, str]) -> None:
        """
        Args:
            needs: `Endpoint.needs` by the path of a route. Routes that aren't there are for administrators.
        """
        self._app = app
        self._gatekeeper = service.gatekeeper
        self._recording = service.recording
        self._counts = service.counts
        self._board = service.board
        self._model = service.config.served_model_name
        self._needs = needs
        # Most paths are one route's alone: no need to try all of them at each request.
        paths = {route.path for route in app.routes if isinstance(route, Route) and not route.param_convertors}
        self._by_path = {path: self._match({"type": "http", "method": "GET", "path": path}) for path in paths}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._endpoint(scope) == NO_KEY:
            await self._app(scope, receive, send)
            return
        try:
            await self._let_in(scope, receive, send)
        finally:
            self._counts.add_refusal(record_of(scope))

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or say why not."""
        try:
            meter = self._meter(scope)
        except HttpError as error:
            await refusal(error, record_of(scope), CHALLENGE)(scope, receive, send)
            return
        record_of(scope).key_id = meter.key.key_id
        endpoint = self._endpoint(scope)
        try:
            _check_endpoint(meter, endpoint, scope["path"])
            visit = meter.enter()
        except FreeholdError as error:
            answer = refusal(error, record_of(scope), meter.headers())
            await self._turn_away(meter, answer, endpoint, scope, receive, send)
            return
        with visit:
            await self._let_through(visit, endpoint, scope, receive, send)

    async def _turn_away(
        self, meter: Meter, answer: Response, endpoint: str | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Refuse what the key isn't for, or asks too often. Listed and counted as what the application refuses."""
        record = record_of(scope)
        record.status = answer.status_code
        try:
            with self._listed(record, endpoint):
                await answer(scope, receive, send)
        finally:
            if endpoint in _IN_LEDGER:
                self._count(meter.key.key_id, meter.clocks.today(), Usage(requests=1), record)

    async def _let_through(
        self, visit: Visit, endpoint: str | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        record = record_of(scope)
        if self._recording is not None and endpoint in _IN_LEDGER:
            record.flight = self._recording.flight(visit.meter.key, record.request_id)
        record.watchers = (self._counts.timings,)
        scope[_VISIT] = visit
        scope[SCOPE_KEY] = replace(caller_of(scope), key_id=visit.key_id, scope=visit.meter.key.scope)

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                headers = MutableHeaders(scope=message)
                if not headers.get("content-type", "").startswith("text/event-stream"):
                    visit.settle(_used(visit, record).num_tokens)  # all is known, so tell what is left now
                headers.update(visit.meter.headers())
            await send(message)

        try:
            with self._listed(record, endpoint):
                await self._app(scope, receive, send_on)
        finally:
            used = _used(visit, record)
            visit.settle(used.num_tokens)
            has_generated = visit.num_reserved > 0 or outcome_of(record) != "completed"  # counting tokens is free
            if endpoint in _IN_LEDGER and has_generated:
                self._count(visit.key_id, visit.day, used, record)

    def _listed(self, record: Record, endpoint: str | None) -> AbstractContextManager[None]:
        """Requests to generate are in the live list until the context is left."""
        if endpoint is None or endpoint not in _IN_LEDGER:
            return nullcontext()
        return self._board.following(record, endpoint)

    def _count(self, key_id: KeyId, day: str, used: Usage, record: Record) -> None:
        """A request to generate has ended."""
        outcome = outcome_of(record)
        self._gatekeeper.count(Account(day, key_id, self._model, outcome), used)
        self._counts.add(key_id, outcome, used, record)
        self._board.saw_use(key_id, used)

    def _meter(self, scope: Scope) -> Meter:
        """The meter of whoever asks.

        Raises:
            HttpError: 401; nobody valid does.
        """
        if SCOPE_KEY in scope:
            meter = self._gatekeeper.meter(caller_of(scope).key_id)
            if meter is None:
                raise unauthorized("the key that this was asked for with isn't valid any more")
            return meter
        if self._gatekeeper.anyone is not None:
            return self._gatekeeper.anyone
        meter = self._gatekeeper.recognize(secret_in(Headers(scope=scope)))
        if meter is None:
            raise unauthorized("the key is unknown, expired or revoked")
        return meter

    def _endpoint(self, scope: Scope) -> str | None:
        """What a key must allow for the route that the application will take; None if it has none."""
        path = scope["path"]
        if path in self._by_path and not scope.get("root_path"):
            return self._by_path[path]
        return self._match(scope)

    def _match(self, scope: Scope) -> str | None:
        """The same, found by trying the routes in their order."""
        for route in self._app.routes:
            if route.matches(scope)[0] is not Match.NONE:
                return self._needs.get(route.path, ADMIN) if isinstance(route, Route) else ADMIN
        return None


def visit_of(scope: Scope) -> Visit:
    """The visit that the gate made for a request."""
    visit: Visit = scope[_VISIT]
    return visit


def outcome_of(record: Record) -> Outcome:
    """How a request ended, once it has."""
    if record.status == CLIENT_LEFT:
        return "cancelled"
    if 400 <= record.status < 500:
        return "refused"
    return "failed" if record.status >= 500 or record.status == 0 or record.failure else "completed"


def _check_endpoint(meter: Meter, endpoint: str | None, path: str) -> None:
    """Refuse what the key isn't for.

    Raises:
        HttpError: 403.
    """
    if endpoint is not None and endpoint != ANY_KEY and not meter.key.scope.allows_endpoint(endpoint):
        option = "admin" if endpoint == ADMIN else f"endpoints {endpoint}"
        raise HttpError(
            403,
            f"this key isn't for {path[:200]}; use one of `freehold keys create NAME --{option}`",
            code="endpoint_not_allowed",
        )


def _used(visit: Visit, record: Record) -> Usage:
    """What a request has used so far. Nothing before it reserved tokens, or if it ended in an error without any."""
    has_failed = record.status >= 400 and record.status != CLIENT_LEFT
    if visit.num_reserved == 0 or (has_failed and not record.num_output_tokens):
        return Usage(requests=1)
    return Usage(
        requests=1,
        prompt_tokens=record.num_prompt_tokens,
        cached_tokens=record.num_cached_tokens,
        output_tokens=record.num_output_tokens,
        reasoning_tokens=record.num_reasoning_tokens,
    )
