"""What all ways to write calls have in common: content around them, objects and lists of calls, and what fails."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from freehold.serve.chat.markup import SPACE, beginning_at_end
from freehold.serve.toolcalls.calls import Calls
from freehold.serve.toolcalls.json_text import read_string, skip_value
from freehold.serve.toolcalls.source import EndedError, MalformedError, Scan, Source

_ARGUMENTS = ("arguments", "parameters")
_IGNORED = frozenset({"id", "type"})


@dataclass(frozen=True, slots=True)
class Scanner:
    """What a way to write calls is parsed with.

    Attributes:
        tools: that may be called: the schemas of their arguments, by name.
    """

    source: Source
    calls: Calls
    tools: Mapping[str, Mapping[str, Any]]

    def find(self, opener: str) -> Scan[bool]:
        """Consume content up to an opener, and the opener with the white space before it.

        Returns:
            False: there is none, and all is consumed.
        """
        source = self.source
        while True:
            before, found, _ = source.held.partition(opener)
            size = len(before) if found else len(before) - beginning_at_end(before, opener)
            size = len(before[:size].rstrip(SPACE))
            with source.into(self.calls.content):
                source.take(size if found or not source.is_closed else len(source.held))
            if found:
                source.take(len(before) - size + len(opener))
                return True
            if source.is_closed:
                return False
            yield

    def rest(self) -> Scan[None]:
        """Consume all that comes, as content."""
        with self.source.into(self.calls.content):
            while True:
                self.source.take(len(self.source.held))
                if self.source.is_closed:
                    return
                yield

    def attempt(self, calls: Scan[None]) -> Scan[None]:
        """Run a parser of calls. What it consumed for nothing becomes content."""
        try:
            yield from calls
        except EndedError:
            self.calls.break_off()
        except MalformedError:
            self.calls.give_back()
        else:
            self.calls.settle()

    def objects(self, *, known: bool = False) -> Scan[None]:
        """One call, or a list of them, each an object.

        Args:
            known: only tools of the request can be called; anything else is malformed.
        """
        source = self.source
        yield from source.skip_space()
        self.calls.open()
        if not (yield from source.accept("[")):
            yield from self.object(known=known)
            return
        while True:
            yield from source.skip_space()
            yield from self.object(known=known)
            yield from source.skip_space()
            if (yield from source.accept("]")):
                self.calls.close()
                return
            yield from source.expect(",")

    def object(self, *, known: bool = False) -> Scan[None]:
        """A call as ``{"name": …, "arguments": {…}}``, or with ``parameters``, in any order; the name comes first where
        only known tools can be called."""
        source = self.source
        name: str | None = None
        written: str | None = None  # arguments that came before the name
        num_arguments = 0
        self.calls.open()
        yield from source.expect("{")
        yield from source.skip_space()
        while True:
            key = yield from read_string(source, is_plain=known)
            yield from source.skip_space()
            yield from source.expect(":")
            yield from source.skip_space()
            if key == "name" and name is None:
                name = yield from self._name(known)
            elif key in _ARGUMENTS and not num_arguments and not (known and name is None):
                num_arguments += 1
                if name is None:
                    with source.copied() as pieces:
                        yield from self._arguments()
                    written = "".join(pieces)
                else:
                    yield from self.call(name)
            elif known and name is None:  # what may come before the name is what `writing` knows of
                if key != "type" or (yield from read_string(source, is_plain=True)) != "function":
                    raise MalformedError
            elif key in _IGNORED:
                yield from skip_value(source)
            else:
                raise MalformedError
            yield from source.skip_space()
            if (yield from source.accept("}")):
                break
            yield from source.expect(",")
            yield from source.skip_space()
        if name is None:
            raise MalformedError
        if not num_arguments or written is not None:
            self.calls.begin(name)
            self.calls.arguments(written or "{}")
            self.calls.end()
        self.calls.close()

    def call(self, name: str) -> Scan[None]:
        """A call's arguments, an object; they are passed on as they come."""
        if (yield from self.source.peek()) != "{":
            raise MalformedError
        self.calls.begin(name)
        with self.source.into(self.calls.arguments):
            yield from skip_value(self.source)
        self.calls.end()

    def _name(self, known: bool) -> Scan[str]:
        name = yield from read_string(self.source, is_plain=known)
        if known and name not in self.tools:
            raise MalformedError
        return name

    def _arguments(self) -> Scan[None]:
        if (yield from self.source.peek()) != "{":
            raise MalformedError
        yield from skip_value(self.source)
