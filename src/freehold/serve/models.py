"""``GET /v1/models`` and ``GET /v1/models/{id}``."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from freehold.serve.entrance.caller import caller_of
from freehold.serve.generation import MAX_PROMPT_LOGPROBS
from freehold.serve.schema import ModelCard, ModelList
from freehold.serve.service import MAX_ANSWERS, Service
from freehold.text import param_checks, params


async def list_models(request: Request) -> Response:
    """The served model, by each of its names that the key is for."""
    service: Service = request.app.state.service
    scope = caller_of(request.scope).scope
    return _json(ModelList([_card(service, name) for name in service.model_names if scope.allows_model(name)]))


async def get_model(request: Request) -> Response:
    """The served model, if that is one of its names."""
    service: Service = request.app.state.service
    name = request.path_params["model"]
    service.check_model(name, caller_of(request.scope))
    return _json(_card(service, name))


def _card(service: Service, name: str) -> ModelCard:
    return ModelCard(
        id=name,
        created=service.created,
        max_model_len=service.info.max_model_len,
        limits={
            "n": params.MAX_N,
            "answers_per_request": MAX_ANSWERS,
            "stop": param_checks.MAX_STOPS,
            "stop_bytes": param_checks.MAX_STOP_BYTES,
            "stop_token_ids": params.MAX_STOP_TOKEN_IDS,
            "allowed_token_ids": params.MAX_ALLOWED_TOKEN_IDS,
            "logit_bias": params.MAX_BIASES,
            "top_logprobs": params.MAX_LOGPROBS,
            "prompt_logprobs_per_request": MAX_PROMPT_LOGPROBS,
            "body_bytes": service.config.max_body_bytes,
            **({} if service.max_answers is None else {"answers_at_once": service.max_answers}),
        },
        system_fingerprint=service.info.fingerprint,
    )


def _json(struct: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(struct), media_type="application/json")
