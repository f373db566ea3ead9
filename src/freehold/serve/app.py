"""The ASGI application: routes, errors, and the guard around them."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from freehold.errors import FreeholdError
from freehold.serve.chat import create_chat
from freehold.serve.completions import create_completion
from freehold.serve.failure import handle
from freehold.serve.guard import Guard
from freehold.serve.health import live, ready
from freehold.serve.models import get_model, list_models
from freehold.serve.profile import profile
from freehold.serve.reply import ClientLeftError, handle_left
from freehold.serve.service import Service
from freehold.serve.tokenize import apply_template, detokenize, tokenize, tokenizer_info


def build_app(service: Service) -> ASGIApp:
    """The server of one model."""
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", create_chat, methods=["POST"]),
            Route("/v1/completions", create_completion, methods=["POST"]),
            Route("/v1/models", list_models),
            Route("/v1/models/{model:path}", get_model),
            Route("/tokenize", tokenize, methods=["POST"]),
            Route("/detokenize", detokenize, methods=["POST"]),
            Route("/tokenizer_info", tokenizer_info),
            Route("/apply-template", apply_template, methods=["POST"]),
            Route("/debug/profile", profile, methods=["POST"]),
            Route("/livez", live),
            Route("/readyz", ready),
            Route("/health", ready),
        ],
        exception_handlers={
            ClientLeftError: handle_left,
            FreeholdError: handle,
            HTTPException: handle,
            Exception: handle,
        },
    )
    app.state.service = service
    return Guard(app, service.config.host)
