"""Errors in Anthropic's shape."""

from freehold.serve.messages.schema import MESSAGES_PATH, MessageError, MessageFailure
from freehold.serve.schema import Failure

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def is_of_messages(path: str) -> bool:
    """Whether a path is the Messages API's."""
    return path == MESSAGES_PATH or path.startswith(f"{MESSAGES_PATH}/")


def message_failure(status: int, failure: Failure, request_id: str) -> MessageFailure:
    """An error of status 4xx or 5xx."""
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    return MessageFailure(MessageError(kind, failure.message), request_id)
