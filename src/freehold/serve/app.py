"""The ASGI application: routes, errors, and the guard around them."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from freehold.errors import FreeholdError
from freehold.serve.endpoints import ENDPOINTS
from freehold.serve.failure import handle
from freehold.serve.guard import Guard
from freehold.serve.reply import ClientLeftError, handle_left
from freehold.serve.service import Service


def build_app(service: Service) -> ASGIApp:
    """The server of one model."""
    app = Starlette(
        routes=[endpoint.route() for endpoint in ENDPOINTS],
        exception_handlers={
            ClientLeftError: handle_left,
            FreeholdError: handle,
            HTTPException: handle,
            Exception: handle,
        },
    )
    app.state.service = service
    app.state.endpoints = ENDPOINTS
    app.state.document = None
    return Guard(app, service.config.host)
