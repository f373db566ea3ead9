"""What a workload must know of the served model: its context, and how it counts tokens."""

import http.client
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from freehold.errors import ConfigError
from freehold.foreign_json import NOT_JSON
from freehold.loadtest.client.target import Target
from freehold.loadtest.workloads.base import Message
from freehold.loadtest.workloads.filler import GUESSED, CountChat, Filler, Form, Tokenize, any_ids, learn

_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Served:
    """A served model, seen from a workload.

    Attributes:
        form: of prompts at the endpoint that gets them.
        max_model_len: tokens of context; None if nobody knows.
        tokenize: None if nobody knows the tokenizer.
        count_chat: None if the server doesn't count chats.
        vocab_size: ids that there are; None if nobody knows.
    """

    form: Form
    max_model_len: int | None = None
    tokenize: Tokenize | None = None
    count_chat: CountChat | None = None
    vocab_size: int | None = None

    def filler(self, form: Form | None = None) -> Filler:
        """What prompts are made of: exactly as long as they must be if the tokenizer is known, else about.

        Args:
            form: instead of the endpoint's.

        Raises:
            ConfigError: see `learn`.
        """
        form = form or self.form
        vocab_size = self.vocab_size if form == "ids" else None
        if self.tokenize is None:
            guessed = replace(GUESSED, form="chat" if form == "chat" else "text")
            return any_ids(vocab_size) if vocab_size else guessed
        try:
            return learn(self.tokenize, form, self.count_chat)
        except ConfigError:  # a vocabulary without words, such as that of a model with random weights
            if vocab_size is None:
                raise
            return any_ids(vocab_size)

    def count(self, text: str) -> int:
        """Tokens of a text; without tokenizer a guess: four tokens are about three words."""
        return len(self.tokenize(text)) if self.tokenize else max(round(len(text.split()) * 4 / 3), 1)


class _Tokenizer:
    """A server's ``POST /tokenize``, over one connection."""

    def __init__(self, target: Target, model: str) -> None:
        self._connection = (
            http.client.HTTPConnection(target.host, target.port, timeout=_TIMEOUT_S)
            if target.tls is None
            else http.client.HTTPSConnection(target.host, target.port, timeout=_TIMEOUT_S, context=target.tls)
        )
        self._path = target.base_path + "/tokenize"
        self._model = model
        lines = target.headers.decode("latin-1").splitlines()
        self._headers = dict(line.split(": ", 1) for line in lines) | {"Content-Type": "application/json"}

    def ask(self, body: dict[str, Any]) -> "_Tokenized | None":
        """None if the server doesn't answer such a question."""
        sent = msgspec.json.encode({"model": self._model, **body})
        try:
            self._connection.request("POST", self._path, sent, self._headers)
            with self._connection.getresponse() as response:
                answer = response.read()
                return msgspec.json.decode(answer, type=_Tokenized) if response.status == http.HTTPStatus.OK else None
        except (OSError, http.client.HTTPException, *NOT_JSON):
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
def asking(target: Target, model: str, form: Form) -> Iterator[Served]:
    """What a server tells of its model, which it can be asked for as long as the ``with`` lasts. One without
    ``/tokenize`` tells nothing.
    """
    tokenizer = _Tokenizer(target, model)
    try:
        first = tokenizer.ask({"prompt": "a"})
        yield Served(form, first.max_model_len, tokenizer.tokenize, tokenizer.count_chat) if first else Served(form)
    finally:
        tokenizer.close()
