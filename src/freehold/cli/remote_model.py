"""A model behind a running server, for ``freehold chat --url``."""

import http.client
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec

from freehold.errors import ConfigError, RequestError, ResourceError
from freehold.text.params import SamplingParams

TIMEOUT_S = 600.0
_MAX_ERROR_BYTES = 1 << 16
Chat = Sequence[dict[str, str]]


class RemoteModel:
    """An OpenAI-compatible server's model.

    Attributes:
        url: of the server, with or without ``/v1``.
        model: its name there; None takes the first that the server lists.
    """

    def __init__(self, url: str, model: str | None) -> None:
        """
        Raises:
            ConfigError: not an HTTP URL.
            ResourceError: no server answers there, or it has no model.
        """
        try:
            parts = urlsplit(url)
            is_usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        except ValueError:  # brackets, or a port that is no number
            is_usable = False
        if not is_usable:
            raise ConfigError(f"--url can't be {url!r}: it is http://host:port of a running server")
        self._parts = parts
        self._path = parts.path.rstrip("/").removesuffix("/v1") + "/v1"
        self.url = url
        self.model = model or self._first_model()

    def answer(self, chat: Chat, params: SamplingParams) -> Iterator[str]:
        """Answer a chat. Closing the iterator hangs up, which ends the answer on the server too.

        Raises:
            RequestError: the server refuses the request.
            ResourceError: the server fails, or is gone.
        """
        body = {
            "model": self.model,
            "messages": list(chat),
            "stream": True,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "seed": params.seed,
            "max_completion_tokens": params.max_tokens,
        }
        with self._request("POST", "/chat/completions", msgspec.json.encode(body)) as response:
            for line in response:
                data = line.strip().removeprefix(b"data:").strip()
                if data and data != b"[DONE]" and not data.startswith(b":"):
                    yield self._text_of(data)

    def _first_model(self) -> str:
        try:
            with self._request("GET", "/models", None) as response:
                return msgspec.json.decode(response.read(), type=_Models).data[0].id
        except (msgspec.DecodeError, IndexError):
            raise ResourceError(f"{self.url} doesn't list its models; name one with --model") from None

    def _text_of(self, data: bytes) -> str:
        """The text that an event of the stream adds.

        Raises:
            ResourceError: the event is an error, or nothing that this client knows.
        """
        try:
            event = msgspec.json.decode(data, type=_Event)
        except msgspec.DecodeError:
            raise ResourceError(f"{self.url} sent {data[:80]!r}, which is no part of a chat completion") from None
        if event.error is not None:
            raise ResourceError(f"{self.url} answered: {_message(event.error)}")
        return "".join(choice.delta.content or "" for choice in event.choices)

    @contextmanager
    def _request(self, method: str, path: str, body: bytes | None) -> Iterator[http.client.HTTPResponse]:
        """A successful response, to be read inside the `with`.

        Raises:
            RequestError: a status of 400 to 499.
            ResourceError: another one, no server, or one that breaks off.
        """
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        problem, remedy = f"no server answers at {self.url}", "; start one with `freehold serve`"
        with closing(kind(self._parts.hostname or "", self._parts.port, timeout=TIMEOUT_S)) as connection:
            try:
                connection.request(method, self._path + path, body, {"Content-Type": "application/json"})
                response = connection.getresponse()
                problem, remedy = f"{self.url} broke off", ""
                with response:
                    if response.status != http.HTTPStatus.OK:
                        raise self._refusal(response)
                    yield response
            except (OSError, http.client.HTTPException) as error:
                raise ResourceError(f"{problem}: {_reason(error)}{remedy}") from None

    def _refusal(self, response: http.client.HTTPResponse) -> RequestError | ResourceError:
        reason = _error_in(response.read(_MAX_ERROR_BYTES)) or response.reason
        message = f"{self.url} answered {response.status}: {reason}"
        return RequestError(message) if 400 <= response.status < 500 else ResourceError(message)


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta = msgspec.field(default_factory=_Delta)


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    error: Any = None


def _error_in(body: bytes) -> str:
    """The message in an error's body, whichever shape the server gives it; "" if there is none."""
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    if not isinstance(answer, dict):
        return ""
    return _message(next((answer[key] for key in ("error", "message", "detail") if answer.get(key)), ""))


def _message(error: Any) -> str:
    return str(error.get("message", error) if isinstance(error, dict) else error)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
