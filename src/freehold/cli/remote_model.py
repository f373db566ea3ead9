"""A model behind a running server, for ``freehold chat --url``."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from freehold.cli.remote_server import RemoteServer
from freehold.errors import ResourceError
from freehold.foreign_json import NOT_JSON
from freehold.loadtest.client.refusals import error_message
from freehold.text.params import SamplingParams

Chat = Sequence[dict[str, str]]


class RemoteModel:
    """An OpenAI-compatible server's model.

    Attributes:
        url: of the server, with or without ``/v1``.
        model: its name there; None takes the first that the server lists.
    """

    def __init__(self, url: str, model: str | None, key: str = "") -> None:
        """
        Args:
            key: the server's, if it needs one.

        Raises:
            ConfigError: not an HTTP URL.
            ResourceError: no server answers there, or it has no model.
        """
        self._server = RemoteServer(url, key)
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
        with self._server.request("POST", "/v1/chat/completions", msgspec.json.encode(body)) as response:
            for line in response:
                data = line.strip().removeprefix(b"data:").strip()
                if data and data != b"[DONE]" and not data.startswith(b":"):
                    yield self._text_of(data)

    def _first_model(self) -> str:
        try:
            with self._server.request("GET", "/v1/models", None) as response:
                return msgspec.json.decode(response.read(), type=_Models).data[0].id
        except (*NOT_JSON, IndexError):
            raise ResourceError(f"{self.url} doesn't list its models; name one with --model") from None

    def _text_of(self, data: bytes) -> str:
        """The text that an event of the stream adds.

        Raises:
            ResourceError: the event is an error, or nothing that this client knows.
        """
        try:
            event = msgspec.json.decode(data, type=_Event)
        except NOT_JSON:
            raise ResourceError(f"{self.url} sent {data[:80]!r}, which is no part of a chat completion") from None
        if event.error is not None:
            raise ResourceError(f"{self.url} answered: {error_message(event.error)}")
        return "".join(choice.delta.content or "" for choice in event.choices)


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
