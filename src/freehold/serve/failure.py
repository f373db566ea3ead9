"""Errors as HTTP answers: OpenAI's shape, 4xx for what the client can put right, 5xx for what it can't."""

import logging
import math
from collections.abc import Mapping

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from freehold.errors import EngineError, FreeholdError, LimitError, RequestError
from freehold.serve.entrance.record import Record, record_of
from freehold.serve.messages.failure import is_of_messages, message_failure
from freehold.serve.schema import Failure, FailureBody

RETRY_AFTER_S = 1
"""What clients are told to wait before they try again, at least, and where nobody knows."""

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large", 415: "unsupported_media_type"}
_STATUSES = {
    "grammar_failed": 400,
    "grammar_too_complex": 400,
    "mask_empty": 400,
    "queue_full": 429,
    "profile_running": 409,
    "profiling_unsupported": 501,
    "deadline_exceeded": 503,
    "draining": 503,
    "engine_busy": 503,
    "engine_died": 503,
    "engine_restarting": 503,
    "engine_stalled": 503,
    "engine_stopped": 503,
    "engine_stopping": 503,
    "limits_unknown": 503,
    "warming_up": 503,
}
"""By the code of an `EngineError`; others are 500."""

_log = logging.getLogger(__name__)


class HttpError(FreeholdError):
    """An error with a status of its own. `code` is for machines; None takes the status's usual one."""

    def __init__(self, status: int, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code or _CODES.get(status)
        self.param = param


def describe(error: Exception) -> tuple[int, Failure]:
    """Status and body of an error. What is unexpected shows nothing of its inside."""
    match error:
        case HttpError():
            return error.status, _failure(error.status, str(error), error.param, error.code)
        case RequestError():
            return 400, _failure(400, str(error), error.param, error.code)
        case EngineError():
            status = _STATUSES.get(error.code, 500)
            return status, _failure(status, str(error), None, error.code)
        case LimitError():
            return 429, _failure(429, str(error), None, error.code)
        case HTTPException():
            return error.status_code, _failure(error.status_code, error.detail, None, _CODES.get(error.status_code))
    return 500, _failure(500, "the server failed; its log has the details under this request's id", None, "internal")


def respond(
    status: int, failure: Failure, headers: Mapping[str, str] | None = None, retry_after_s: float | None = None
) -> Response:
    """The answer that carries a failure, with Retry-After, in whole seconds, where trying again can help."""
    wait_s = max(RETRY_AFTER_S, math.ceil(retry_after_s or 0))
    retry = {"retry-after": str(wait_s)} if status in {429, 503} else {}
    return _FailureResponse(status, failure, {**retry, **(headers or {})})


async def handle(request: Request, error: Exception) -> Response:
    """Starlette's hook for exceptions."""
    record = record_of(request.scope)
    if not isinstance(error, HTTPException):
        return refusal(error, record)
    status, failure = describe(error)
    failure.message = f"{request.method} {request.url.path[:200]}: {failure.message}{_remedy(request, error)}"
    record.note_refusal(status, failure.code, failure.param)
    return respond(status, failure, error.headers)


def refusal(error: Exception, record: Record, headers: Mapping[str, str] | None = None) -> Response:
    """The answer that tells of an error, which is noted in the request's record."""
    status, failure = describe(error)
    if failure.code == "internal" and isinstance(
        error, FreeholdError
    ):  # of others, the guard tells where they came from
        _log.error("request %s failed: %s: %s", record.request_id, type(error).__name__, error)
    record.note_refusal(status, failure.code, failure.param)
    retry_after_s = error.retry_after_s if isinstance(error, EngineError | LimitError) else None
    spent = {"x-should-retry": "false"} if failure.code == "insufficient_quota" else {}
    return respond(status, failure, {**spent, **(headers or {})}, retry_after_s)


def _remedy(request: Request, error: HTTPException) -> str:
    """What is there instead: the methods of the path, or all paths."""
    if error.status_code == 405:
        return f"; it takes {(error.headers or {})['Allow']}"
    if error.status_code != 404:
        return ""
    paths = (f"{each.method} {each.template}" for each in request.app.state.endpoints)
    return f"; this server has {', '.join(paths)}"


class _FailureResponse(Response):
    """A failure, in the shape of the surface that was asked."""

    def __init__(self, status: int, failure: Failure, headers: Mapping[str, str]) -> None:
        super().__init__(msgspec.json.encode(FailureBody(failure)), status, headers, "application/json")
        self._failure = failure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if is_of_messages(scope["path"]):
            shaped = message_failure(self.status_code, self._failure, record_of(scope).request_id)
            self.body = msgspec.json.encode(shaped)
            self.headers["content-length"] = str(len(self.body))
        await super().__call__(scope, receive, send)


def _failure(status: int, message: str, param: str | None, code: str | None) -> Failure:
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return Failure(message=message, type=kind, param=param, code=code)
