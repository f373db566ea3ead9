"""A running server, as commands with ``--url`` reach it."""

import http.client
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

from freehold import resolve
from freehold.errors import ConfigError, RequestError, ResourceError
from freehold.loadtest.client.refusals import message_in

TIMEOUT_S = 600.0
_MAX_ERROR_BYTES = 1 << 16


class RemoteServer:
    """A server by its URL, with or without ``/v1``."""

    def __init__(self, url: str, key: str = "", timeout_s: float = TIMEOUT_S) -> None:
        """
        Args:
            key: sent with each request unless empty.
            timeout_s: so long may the server be silent.

        Raises:
            ConfigError: not an HTTP URL.
        """
        try:
            parts = urlsplit(url)
            is_usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        except ValueError:  # brackets, or a port that is no number
            is_usable = False
        if not is_usable:
            raise ConfigError(f"--url can't be {url!r}: it is http://host:port of a running server")
        self._parts = parts
        self._base = parts.path.rstrip("/").removesuffix("/v1")
        self.url = url
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})

    @contextmanager
    def request(self, method: str, path: str, body: bytes | None) -> Iterator[http.client.HTTPResponse]:
        """A successful response, to be read inside the `with`.

        Args:
            path: below the server's base, such as ``/v1/models``.

        Raises:
            RequestError: a status of 400 to 499.
            ResourceError: another one, no server, or one that breaks off.
        """
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        problem, remedy = f"no server answers at {self.url}", "; start one with `freehold serve`"
        with closing(kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout_s)) as connection:
            try:
                connection.request(method, self._base + path, body, self._headers)
                response = connection.getresponse()
                problem, remedy = f"{self.url} broke off", ""
                with response:
                    if response.status != http.HTTPStatus.OK:
                        raise self._refusal(response)
                    yield response
            except (OSError, http.client.HTTPException) as error:
                raise ResourceError(f"{problem}: {_reason(error)}{remedy}") from None

    def _refusal(self, response: http.client.HTTPResponse) -> RequestError | ResourceError:
        reason = message_in(response.read(_MAX_ERROR_BYTES)) or response.reason
        remedy = " (put it into FREEHOLD_API_KEY)" if response.status == http.HTTPStatus.UNAUTHORIZED else ""
        message = f"{self.url} answered {response.status}: {reason}{remedy}"
        return RequestError(message) if 400 <= response.status < 500 else ResourceError(message)


def local_url() -> str:
    """Of the server that `freehold serve` would start here.

    Raises:
        ConfigError: an unusable value in the environment.
    """
    host, port = resolve.address()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
