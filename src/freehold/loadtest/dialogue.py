"""A conversation as it goes on: bodies of its requests, with the answers so far."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from freehold.loadtest.client.answer import Answer
from freehold.loadtest.client.failures import FailedRequestError
from freehold.loadtest.workloads.base import Conversation, Prompt, Turn

Surface = Literal["completions", "chat"]


@dataclass(frozen=True, slots=True)
class BodyOptions:
    """What all bodies have.

    Attributes:
        model: as the server calls it.
        fields: further ones.
    """

    surface: Surface
    model: str
    is_stream: bool = True
    ignores_eos: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)


class Dialogue:
    """One conversation with one server."""

    def __init__(self, conversation: Conversation, options: BodyOptions) -> None:
        self._conversation = conversation
        self._options = options
        self._messages: list[Mapping[str, Any]] = []
        self._text = ""
        self._ids: tuple[int, ...] = ()

    def body(self, turn: Turn) -> bytes:
        """The body of the turn's request.

        Raises:
            FailedRequestError: the endpoint can't take such a turn.
        """
        options = self._options
        fields: dict[str, Any] = {"model": options.model, **self._grow(turn.prompt)}
        if turn.output_len is not None:
            fields["max_tokens"] = turn.output_len
        if turn.tools:
            fields["tools"] = turn.tools
        if options.is_stream:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        if options.ignores_eos:
            fields["ignore_eos"] = True
        if self._needs_ids:
            fields["return_token_ids"] = True
        return msgspec.json.encode(fields | dict(options.fields) | dict(turn.fields))

    def keep(self, answer: Answer) -> None:
        """Make the server's answer a part of what follows, if the conversation wants that."""
        if not self._conversation.keeps_answers:
            return
        if self._options.surface == "chat":
            calls = {"tool_calls": answer.tool_calls} if answer.tool_calls else {}
            self._messages.append({"role": "assistant", "content": answer.text, **calls})
        elif self._ids:
            self._ids += tuple(answer.token_ids)
        else:
            self._text += answer.text

    @property
    def keeps_text(self) -> bool:
        """Whether what the answers say is needed later."""
        return self._conversation.keeps_answers and len(self._conversation.turns) > 1

    @property
    def _needs_ids(self) -> bool:
        return bool(self._ids) and self.keeps_text

    def _grow(self, prompt: Prompt) -> dict[str, Any]:
        if self._options.surface == "chat":
            self._messages += self._chat_messages(prompt)
            return {"messages": self._messages}
        if isinstance(prompt, str):
            if self._ids:
                raise FailedRequestError("refused_turn", "a conversation of token ids goes on with token ids, not text")
            self._text += prompt
            return {"prompt": self._text}
        ids = tuple(each for each in prompt if isinstance(each, int))
        if len(ids) < len(prompt):
            raise FailedRequestError("refused_turn", "completions take text or token ids; messages need --backend "
                                     "openai-chat")  # fmt: skip
        if self._text:
            raise FailedRequestError("refused_turn", "a conversation of text goes on with text, not token ids")
        self._ids += ids
        return {"prompt": self._ids}

    def _chat_messages(self, prompt: Prompt) -> list[Mapping[str, Any]]:
        if isinstance(prompt, str):
            return [{"role": "user", "content": prompt}]
        messages = [each for each in prompt if isinstance(each, Mapping)]
        if len(messages) < len(prompt):
            raise FailedRequestError("refused_turn", "chats take text or messages; token ids need --backend openai")
        return self._with_call_ids(messages)

    def _with_call_ids(self, messages: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Results of tools that don't say of which call, given the ids of the calls that the model made; if it made
        none, they become messages of the user."""
        last = self._messages[-1] if self._messages else {}
        open_ids = [call["id"] for call in last.get("tool_calls", ())]
        fitted: list[Mapping[str, Any]] = []
        for message in messages:
            if message.get("role") != "tool" or "tool_call_id" in message:
                fitted.append(message)
            elif open_ids:
                fitted.append({**message, "tool_call_id": open_ids.pop(0)})
            else:
                fitted.append({"role": "user", "content": message.get("content")})
        return fitted
