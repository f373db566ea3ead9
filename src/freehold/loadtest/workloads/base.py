"""What a load consists of: conversations of turns, and where they come from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Message = Mapping[str, Any]
"""A chat message in the API's form: ``role``, ``content`` and whatever else it has."""

Prompt = str | tuple[int, ...] | tuple[Message, ...]
"""What a turn adds to a prompt: a text, token ids or messages."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request.

    Attributes:
        prompt: what it adds to the turns before. Chats make a text a user's message, and can't take token ids;
            completions can't take messages.
        output_len: tokens that are asked for at most; None leaves it to the server.
        pause_s: seconds between the end of the turn before and this one's intended start: thinking, or a tool at work.
        tools: that the model may call, in the API's form. Only in chats.
        fields: further ones of the request's body, such as ``temperature`` or ``seed``.
        input_len: tokens that the workload meant the whole prompt to have, None if it doesn't know. What is reported is
            what the server counted.
    """

    prompt: Prompt
    output_len: int | None = None
    pause_s: float = 0.0
    tools: tuple[Mapping[str, Any], ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    input_len: int | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns that follow each other. A single request is a conversation of one turn.

    Attributes:
        start_s: intended start of the first turn, in seconds from the beginning of the point, as a trace has it; None
            leaves it to the load.
        keeps_answers: the server's answers become part of later prompts. Otherwise turns bring whatever answers they
            want there (as messages of the assistant) along.
    """

    turns: tuple[Turn, ...]
    start_s: float | None = None
    keeps_answers: bool = True


class Workload(Protocol):
    """Makes the conversations of each point of a load test."""

    @property
    def name(self) -> str:
        """What ``--dataset-name`` calls it."""
        ...

    @property
    def shares_prefixes(self) -> bool:
        """Prompts are meant to begin alike. Otherwise hits in the server's prefix cache are worth a warning."""
        ...

    def conversations(self, num: int, seed: int) -> Sequence[Conversation]:
        """The conversations of one point, at most so many (a trace may have fewer).

        Args:
            seed: the same one gives the same conversations. Every point gets another one, so that no prompt (beyond
                what the workload shares on purpose) is one that the server has seen; with a warm cache on purpose,
                all points get the same one.

        Raises:
            ConfigError: the workload's parameters or files can't give any.
        """
        ...
