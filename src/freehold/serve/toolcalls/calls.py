"""Where consumed text becomes content, markup, or a call with its arguments."""

import secrets
from collections.abc import Callable

from freehold.serve.toolcalls.source import MalformedError
from freehold.text.parts import CallArguments, CallBegin, CallEnd, Content, Part

_ID_CHARS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def openai_id() -> str:
    """A call's id as OpenAI writes them."""
    return f"call_{short_id(24)}"


def short_id(size: int = 9) -> str:
    """Letters and digits. Mistral's templates take ids of nine and nothing else."""
    return "".join(secrets.choice(_ID_CHARS) for _ in range(size))


class Calls:
    """The parts of one answer in the making.

    Markup is kept until it proves to be some: if the call that it should begin, or end, turns out to be none, it is
    content.
    """

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self._parts: list[Part] = []
        self._markup: list[str] = []
        self._num_begun = 0
        self._is_closing = False

    def take_parts(self) -> list[Part]:
        """What is certain since last asked."""
        parts, self._parts = self._parts, []
        return parts

    def content(self, text: str) -> None:
        """Text that is no markup."""
        if self._parts and isinstance(last := self._parts[-1], Content):
            self._parts[-1] = Content(last.text + text)
        elif text:
            self._parts.append(Content(text))

    def markup(self, text: str) -> None:
        """Text that is markup, as it seems."""
        self._markup.append(text)

    def open(self) -> None:
        """What follows should be a call. What stands between it and a call before it is markup."""
        if self._is_closing:
            self.settle()

    def begin(self, name: str) -> None:
        """It is a call.

        Raises:
            MalformedError: it has no name.
        """
        if not name:
            raise MalformedError
        self.settle()
        self._parts.append(CallBegin(self._num_begun, self._new_id(), name))
        self._num_begun += 1

    def arguments(self, text: str) -> None:
        """More of its arguments."""
        index = self._num_begun - 1
        if isinstance(last := self._parts[-1] if self._parts else None, CallArguments):
            self._parts[-1] = CallArguments(index, last.text + text)
        else:
            self._parts.append(CallArguments(index, text))

    def end(self) -> None:
        """Its arguments are complete. What follows should close it."""
        self._parts.append(CallEnd(self._num_begun - 1))
        self._is_closing = True

    def close(self) -> None:
        """It is closed. More of its kind may follow."""
        self.settle()
        self._is_closing = True

    def settle(self) -> None:
        """What was kept is markup."""
        self._markup.clear()
        self._is_closing = False

    def give_back(self) -> None:
        """What was kept is no markup."""
        self.content("".join(self._markup))
        self.settle()

    def break_off(self) -> None:
        """The text has ended: the beginning of what closes a call is markup, that of what opens one is content."""
        if self._is_closing:
            self.settle()
        else:
            self.give_back()
