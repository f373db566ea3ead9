"""Text that comes bit by bit, and parsers that wait for more of it.

A parser is a generator: it yields where it needs more text than there is, and goes on when more has come or none will.
So it reads like a parser of whole texts, and where the text is cut makes no difference to it.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TypeVar

from freehold.serve.chat.markup import SPACE

T = TypeVar("T")

Scan = Generator[None, None, T]
"""A parser that gives a T in the end."""

Sink = Callable[[str], None]


class MalformedError(Exception):
    """What comes isn't what the parser wants. It consumed nothing of that."""


class EndedError(MalformedError):
    """The text ended where more of it was wanted. All of it has been consumed."""


class Source:
    """The text that has come and wasn't consumed.

    Attributes:
        held: that text.
        is_closed: no more comes.
    """

    def __init__(self, sink: Sink) -> None:
        """
        Args:
            sink: takes what is consumed.
        """
        self.held = ""
        self.is_closed = False
        self._sink = sink

    def take(self, size: int) -> None:
        """Consume so many characters."""
        if size:
            text, self.held = self.held[:size], self.held[size:]
            self._sink(text)

    @contextmanager
    def into(self, sink: Sink) -> Iterator[None]:
        """Let another sink take what is consumed meanwhile."""
        before, self._sink = self._sink, sink
        try:
            yield
        finally:
            self._sink = before

    @contextmanager
    def copied(self) -> Iterator[list[str]]:
        """Also collect what is consumed meanwhile."""
        pieces: list[str] = []
        before = self._sink

        def both(text: str) -> None:
            pieces.append(text)
            before(text)

        with self.into(both):
            yield pieces

    def more(self) -> Scan[None]:
        """Wait for more text.

        Raises:
            EndedError: none will come.
        """
        if self.is_closed:
            self.take(len(self.held))
            raise EndedError
        yield

    def peek(self) -> Scan[str]:
        """The next character.

        Raises:
            EndedError: there is none.
        """
        while not self.held:
            yield from self.more()
        return self.held[0]

    def skip_space(self) -> Scan[None]:
        """Consume white space. At the end of the text there is none."""
        while True:
            self.take(len(self.held) - len(self.held.lstrip(SPACE)))
            if self.held or self.is_closed:
                return
            yield

    def expect(self, literal: str) -> Scan[None]:
        """Consume a literal.

        Raises:
            MalformedError: something else comes.
            EndedError: the text ends within it.
        """
        while not self.held.startswith(literal):
            if not literal.startswith(self.held):
                raise MalformedError
            yield from self.more()
        self.take(len(literal))

    def choose(self, *literals: str) -> Scan[str]:
        """Consume the one of some literals that comes; none begins with another.

        Raises:
            MalformedError: something else comes.
            EndedError: the text ends within one.
        """
        while True:
            for literal in literals:
                if self.held.startswith(literal):
                    self.take(len(literal))
                    return literal
            if not any(literal.startswith(self.held) for literal in literals):
                raise MalformedError
            yield from self.more()

    def accept(self, literal: str) -> Scan[bool]:
        """Consume a literal if it comes."""
        while not self.held.startswith(literal):
            if self.is_closed or not literal.startswith(self.held):
                return False
            yield
        self.take(len(literal))
        return True
