"""An endpoint as data: its route, and what the OpenAPI document tells of it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from freehold.serve.schema import Body, FailureBody

ANY = frozenset({400, 401, 403, 429, 500})
"""Statuses that each endpoint may answer with: headers that contradict each other, no key, a key that isn't for it or
has used its limits, a foreign Host, a fault of ours."""

NO_KEY = "no key"
ANY_KEY = "any key"
ADMIN = "admin"
"""What an endpoint may need, besides a key for one of `freehold.access.keys.ENDPOINTS`."""

WITH_BODY = frozenset({408, 413, 415})
GENERATING = frozenset({404, 503})

Handler = Callable[[Request], Awaitable[Response | ASGIApp]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one path.

    Attributes:
        needs: what a key must allow: one of `freehold.access.keys.ENDPOINTS`, or `ANY_KEY`, or `ADMIN`; `NO_KEY` for
            probes.
        handler: answers it; the first paragraph of its docstring is its summary.
        body: what its JSON body is decoded into; None: it takes none.
        body_media: other media type of a body that isn't JSON; its schema is any.
        answer: of status 200, as JSON.
        events: kinds of events of a streamed answer, besides errors.
        failure: body of an answer that isn't 2xx. Streams of those that fail in OpenAI's shape end with ``[DONE]``.
        media: other forms of the answer.
        query: parameters by name, with the values they may have; none: any.
        errors: statuses beyond `ANY`, and `WITH_BODY` if there is one.
        headers: of the answer, beyond ``x-request-id``, with what they tell.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    handler: Handler
    needs: str = ADMIN
    body: type[Body] | None = None
    body_media: str | None = None
    answer: type[msgspec.Struct] | None = None
    events: tuple[type[msgspec.Struct], ...] = ()
    media: tuple[str, ...] = ()
    query: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    errors: frozenset[int] = frozenset()
    headers: Mapping[str, str] = field(default_factory=dict)
    failure: type[msgspec.Struct] = FailureBody

    @property
    def template(self) -> str:
        """The path without Starlette's types: ``/v1/models/{model:path}`` is ``/v1/models/{model}``."""
        return self.path.replace(":path", "")

    @property
    def statuses(self) -> frozenset[int]:
        """All error statuses."""
        has_body = self.body is not None or self.body_media is not None
        return ANY | self.errors | (WITH_BODY if has_body else frozenset())


def routes(endpoints: Iterable[Endpoint]) -> list[Route]:
    """Starlette's form: a route for each path, so that what isn't allowed there is answered with all that is."""
    by_path: dict[str, dict[str, Handler]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint.handler
    return [Route(path, _by_method(handlers), methods=list(handlers)) for path, handlers in by_path.items()]


def _by_method(handlers: Mapping[str, Handler]) -> Handler:
    async def handle(request: Request) -> Response | ASGIApp:
        return await handlers["GET" if request.method == "HEAD" else request.method](request)

    return handle
