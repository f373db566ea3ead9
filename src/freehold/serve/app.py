"""The ASGI application: routes, errors, and what stands before them: guard, origins and gate."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from freehold.errors import FreeholdError
from freehold.serve.endpoint import routes
from freehold.serve.endpoints import ENDPOINTS
from freehold.serve.entrance.gate import Gate
from freehold.serve.entrance.guard import Guard
from freehold.serve.entrance.origins import Origins
from freehold.serve.failure import handle
from freehold.serve.reply import ClientLeftError, handle_left
from freehold.serve.service import Service
from freehold.serve.tracing.traced import Traced
from freehold.serve.warmup import WarmUp


def build_app(service: Service) -> ASGIApp:
    """The server of one model."""
    app = _routed(service)
    needs = {endpoint.path: endpoint.needs for endpoint in ENDPOINTS}
    gate: ASGIApp = Gate(app, service, needs)
    if service.tracing is not None:
        gate = Traced(gate, service.tracing, ENDPOINTS)
    if service.batches is not None:
        service.batches.start(gate)
    if service.config.warmup_prefixes is not None:
        app.state.warm_up = WarmUp(service, service.config.warmup_prefixes)
        app.state.warm_up.start()
    return Guard(Origins(gate, service.config.allowed_origins), service.config.host)


def _routed(service: Service) -> Starlette:
    """Routes and errors, without gate and guard."""
    app = Starlette(
        routes=routes(ENDPOINTS),
        exception_handlers={
            ClientLeftError: handle_left,
            FreeholdError: handle,
            HTTPException: handle,
            Exception: handle,
        },
    )
    # A redirect would name the scheme that reached us, not the one that reached whatever speaks TLS before us.
    app.router.redirect_slashes = False
    app.state.service = service
    app.state.endpoints = ENDPOINTS
    app.state.document = None
    return app
