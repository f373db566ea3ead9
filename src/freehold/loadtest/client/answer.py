"""An answer as it arrives: when its tokens came, what the server counted, what it says."""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from freehold.loadtest.client.events import MAX_EVENT_BYTES, EventReader, EventTooLongError
from freehold.loadtest.client.failures import FailedRequestError
from freehold.loadtest.client.refusals import error_message
from freehold.loadtest.client.usage import TokenCounts, Usage, counts_in

TokenSource = Literal["usage", "ids", "tokenizer", "unknown"]

_DONE = b"[DONE]"


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    index: int | None = 0
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    """What a chunk of a chat adds, or a whole chat's message. Servers name reasoning in two ways."""

    content: str | list[Any] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None
    function_call: Any = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    text: str | None = None
    token_ids: list[int] | None = None
    finish_reason: str | None = None


class _Verbose(msgspec.Struct):
    """What llama.cpp's server adds with ``verbose``."""

    tokens: list[int] | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    verbose: _Verbose | None = msgspec.field(default=None, name="__verbose")
    usage: Usage | None = None
    error: Any = None
    system_fingerprint: str | None = None


_decoder = msgspec.json.Decoder(_Event)


class Answer:
    """Reads one answer, streamed or whole.

    Attributes:
        arrivals_s: when each chunk came that brought tokens: content, reasoning or calls of tools.
        first_output_s: when the first one came that wasn't only reasoning.
        ended_s: when the last chunk came that brought tokens or the reason to finish; the last bytes of a whole answer.
        token_ids: if the server tells them.
        counts: the server's own, those that came last.
        text: of the content, if it is kept.
        tool_calls: in the API's form, if the text is kept.
    """

    def __init__(self, *, is_stream: bool, keeps_text: bool) -> None:
        self.is_stream = is_stream
        self.arrivals_s: list[float] = []
        self.first_output_s: float | None = None
        self.ended_s: float | None = None
        self.token_ids: list[int] = []
        self.counts = TokenCounts()
        self.finish_reason: str | None = None
        self.fingerprint: str | None = None
        self._keeps_text = keeps_text
        self._parts: list[str] = []  # content
        self._others: list[str] = []  # reasoning and arguments of calls, which count as tokens too
        self._calls: dict[int, dict[str, Any]] = {}
        self._events = EventReader()
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._is_done = False

    @property
    def lacks_done(self) -> bool:
        """It was streamed, and its end was told by the reason to finish alone."""
        return self.is_stream and not self._is_done

    @property
    def text(self) -> str:
        return "".join(self._parts)

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        return [self._calls[index] for index in sorted(self._calls)]

    def take(self, chunk: bytes, now_s: float) -> None:
        """Bytes of the body that arrived at this time.

        Raises:
            FailedRequestError: they are no events, or one of them is an error.
        """
        if not self.is_stream:
            self._body.append(chunk)
            self._body_bytes += len(chunk)
            if self._body_bytes > MAX_EVENT_BYTES:
                raise FailedRequestError("malformed", f"an answer of more than {MAX_EVENT_BYTES} bytes")
            return
        try:
            for data in self._events.feed(chunk):
                self._take_event(data, now_s)
        except EventTooLongError as error:
            raise FailedRequestError("malformed", str(error)) from None

    def finish(self, now_s: float) -> None:
        """The body has ended.

        Raises:
            FailedRequestError: the answer isn't whole.
        """
        if not self.is_stream:
            event = self._decode(b"".join(self._body))
            if not event.choices:
                raise FailedRequestError("malformed", "the answer has no choices")
            self._take_counts(event)
            for choice in event.choices:
                self._take_choice(choice)
            self.ended_s = now_s
            return
        for data in self._events.finish():
            self._take_event(data, now_s)
        if self.finish_reason is None and not self._is_done:
            raise FailedRequestError("incomplete", "the stream ended without [DONE] or a reason to finish")
        if self.ended_s is None:
            raise FailedRequestError("incomplete", "the stream ended without tokens or a reason to finish")

    def num_tokens(self, count: Callable[[str], int] | None) -> tuple[int | None, TokenSource]:
        """How many tokens came, never by chunks, and who says so.

        Args:
            count: the tokens of a text, if there is a tokenizer. Only asked if the server tells neither usage nor ids.
        """
        if self.counts.num_output is not None:
            return self.counts.num_output, "usage"
        if self.token_ids:
            return len(self.token_ids), "ids"
        if count is not None and self._keeps_text:
            return count("".join(self._others)) + count(self.text), "tokenizer"
        return None, "unknown"

    def _take_event(self, data: bytes, now_s: float) -> None:
        if data == _DONE:
            self._is_done = True
            return
        event = self._decode(data)
        if event.error:  # an empty one is none
            raise FailedRequestError("error_event", f"the server sent an error: {error_message(event.error)}")
        self._take_counts(event)
        brings_tokens = ends = brings_output = False
        if event.verbose is not None:
            self.token_ids.extend(event.verbose.tokens or [])
            brings_tokens = bool(event.verbose.tokens)
        for choice in event.choices or []:
            output, other = self._take_choice(choice)
            brings_output |= output
            brings_tokens |= output or other
            ends |= choice.finish_reason is not None
        if brings_tokens:
            self.arrivals_s.append(now_s)
            if brings_output and self.first_output_s is None:
                self.first_output_s = now_s
        if brings_tokens or ends:
            self.ended_s = now_s

    def _take_counts(self, event: _Event) -> None:
        if event.usage is not None:
            self.counts = counts_in(event.usage)
        if event.system_fingerprint is not None:
            self.fingerprint = event.system_fingerprint

    def _take_choice(self, choice: _Choice) -> tuple[bool, bool]:
        """Book a choice. Returns whether it brings output, and whether it brings other tokens."""
        delta = choice.delta or choice.message or _Delta()
        reasoning = delta.reasoning or delta.reasoning_content
        content = choice.text or _text_in(delta.content)
        calls = delta.tool_calls or []
        if choice.finish_reason is not None:
            self.finish_reason = choice.finish_reason
        if choice.token_ids:
            self.token_ids.extend(choice.token_ids)
        if self._keeps_text:
            if content:
                self._parts.append(content)
            if reasoning:
                self._others.append(reasoning)
            for call in calls:
                self._take_call(call)
        brings_output = bool(content or calls or delta.function_call)
        return brings_output, bool(reasoning or choice.token_ids)

    def _take_call(self, part: _ToolCall) -> None:
        index = self._unnumbered(part) if part.index is None else part.index
        whole = self._calls.setdefault(index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        whole["id"] = part.id or whole["id"]
        if part.function is not None:
            for name in ("name", "arguments"):
                text = getattr(part.function, name) or ""
                whole["function"][name] += text
                self._others.append(text)

    def _unnumbered(self, part: _ToolCall) -> int:
        """Where a part of a call without a number belongs: to the last call, unless it has an id of its own."""
        last = max(self._calls, default=0)
        is_new = last in self._calls and part.id and part.id != self._calls[last]["id"]
        return last + 1 if is_new else last

    @staticmethod
    def _decode(data: bytes) -> _Event:
        try:
            return _decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise FailedRequestError("malformed", f"{data[:80]!r} is no part of an answer: {error}") from None
        except RecursionError:
            raise FailedRequestError("malformed", f"{data[:80]!r} is nested too deeply for an answer") from None


def _text_in(content: str | list[Any] | None) -> str | None:
    """The text of content, which may come in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content
