"""The secret that a request carries: ``Authorization: Bearer …`` or ``x-api-key: …``."""

from starlette.datastructures import Headers

from freehold.serve.failure import HttpError

CHALLENGE = {"www-authenticate": "Bearer"}


def secret_in(headers: Headers) -> str:
    """The one secret of a request.

    Raises:
        HttpError: 401 without one, or with two that differ: whichever was taken, another part might take the other.
    """
    found = set(headers.getlist("x-api-key"))
    for value in headers.getlist("authorization"):
        scheme, _, rest = value.partition(" ")
        if scheme.lower() != "bearer":
            raise unauthorized("the Authorization header must be: Bearer, a space, and the key")
        found.add(rest.strip())
    found.discard("")
    if not found:
        raise unauthorized("this server needs a key: send Authorization: Bearer KEY, or x-api-key: KEY")
    if len(found) > 1:
        raise unauthorized("the request carries several keys that differ; send one")
    return found.pop()


def unauthorized(message: str) -> HttpError:
    """401. The key that was sent is never repeated."""
    return HttpError(401, message, code="invalid_api_key")
