"""What a workload must know of the served model: its context, and how it counts tokens."""

import http.client
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from freehold.loadtest.workloads.base import Message
from freehold.loadtest.workloads.filler import GUESSED, CountChat, Filler, Form, Tokenize, learn

_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Served:
    """A served model, seen from a workload.

    Attributes:
        form: of prompts at the endpoint that gets them.
        max_model_len: tokens of context; None if nobody knows.
        tokenize: None if nobody knows the tokenizer.
        count_chat: None if the server doesn't count chats.
    """

    form: Form
    max_model_len: int | None = None
    tokenize: Tokenize | None = None
    count_chat: CountChat | None = None

    def filler(self) -> Filler:
        """What prompts are made of: exactly as long as they must be if the tokenizer is known, else about.

        Raises:
            ConfigError: see `learn`.
        """
        if self.tokenize is None or (self.form == "chat" and self.count_chat is None):
            return GUESSED
        return learn(self.tokenize, self.form, self.count_chat)

    def count(self, text: str) -> int:
        """Tokens of a text; without tokenizer a guess: four tokens are about three words."""
        return len(self.tokenize(text)) if self.tokenize else max(round(len(text.split()) * 4 / 3), 1)


class _Tokenizer:
    """A server's ``POST /tokenize``, over one connection."""

    def __init__(self, url: str, model: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
        self._path = parts.path.rstrip("/").removesuffix("/v1") + "/tokenize"
        self._model = model
        self._headers = {"Content-Type": "application/json", **headers}

    def ask(self, body: dict[str, Any]) -> "_Tokenized | None":
        """None if the server doesn't answer such a question."""
        sent = msgspec.json.encode({"model": self._model, **body})
        try:
            self._connection.request("POST", self._path, sent, self._headers)
            with self._connection.getresponse() as response:
                answer = response.read()
                return msgspec.json.decode(answer, type=_Tokenized) if response.status == http.HTTPStatus.OK else None
        except (OSError, http.client.HTTPException, msgspec.DecodeError):
            self.close()
            return None

    def close(self) -> None:
        """Hang up. A later question calls again."""
        self._connection.close()

    def tokenize(self, prompt: str) -> list[int]:
        """As `Tokenize`. What can't be tokenized has no tokens: the words that it has are then no words for prompts."""
        answer = self.ask({"prompt": prompt})
        return answer.tokens if answer else []

    def count_chat(self, messages: Sequence[Message]) -> int | None:
        """As `CountChat`."""
        answer = self.ask({"messages": list(messages), "add_generation_prompt": True})
        return answer.count if answer else None


class _Tokenized(msgspec.Struct):
    count: int
    tokens: list[int]
    max_model_len: int | None = None


@contextmanager
def asking(url: str, model: str, form: Form, headers: Mapping[str, str]) -> Iterator[Served]:
    """What a server tells of its model, which it can be asked for as long as the ``with`` lasts. One without
    ``/tokenize`` tells nothing.

    Args:
        url: of the server, with or without ``/v1``.
        headers: of every request, such as ``Authorization``.
    """
    tokenizer = _Tokenizer(url, model, headers)
    try:
        first = tokenizer.ask({"prompt": "a"})
        yield Served(form, first.max_model_len, tokenizer.tokenize, tokenizer.count_chat) if first else Served(form)
    finally:
        tokenizer.close()
