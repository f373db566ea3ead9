"""A model behind a running server, for ``freehold chat --url``."""

import http.client
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from freehold.errors import ConfigError, ResourceError
from freehold.text.params import SamplingParams

TIMEOUT_S = 600.0
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
            ResourceError: no server answers there.
        """
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigError(f"--url can't be {url!r}: it is http://host:port of a running server")
        self._parts = parts
        self._path = parts.path.rstrip("/").removesuffix("/v1") + "/v1"
        self.url = url
        self.model = model or str(self._decode(self._request("GET", "/models", None))["data"][0]["id"])

    def answer(self, chat: Chat, params: SamplingParams) -> Iterator[str]:
        """Answer a chat. Closing the iterator hangs up, which ends the answer on the server too."""
        body = {
            "model": self.model,
            "messages": list(chat),
            "stream": True,
            "temperature": params.temperature,
            "seed": params.seed,
            "max_completion_tokens": params.max_tokens,
        }
        response = self._request("POST", "/chat/completions", msgspec.json.encode(body))
        try:
            for line in response:
                data = line.strip().removeprefix(b"data: ")
                if not data or data == b"[DONE]":
                    continue
                event = msgspec.json.decode(data)
                if "error" in event:
                    raise ResourceError(f"{self.url} answered: {event['error']['message']}")
                for choice in event["choices"]:
                    yield choice["delta"].get("content") or ""
        finally:
            response.close()

    def _request(self, method: str, path: str, body: bytes | None) -> http.client.HTTPResponse:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=TIMEOUT_S)
        try:
            connection.request(method, self._path + path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise ResourceError(f"no server answers at {self.url}: {error}") from None
        if response.status != http.HTTPStatus.OK:
            message = self._decode(response).get("error", {}).get("message", response.reason)
            raise ResourceError(f"{self.url} answered {response.status}: {message}")
        return response

    @staticmethod
    def _decode(response: http.client.HTTPResponse) -> dict[str, Any]:
        try:
            return msgspec.json.decode(response.read(), type=dict[str, Any])
        except msgspec.DecodeError:
            return {}
