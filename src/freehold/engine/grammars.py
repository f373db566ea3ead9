"""Grammars are compiled in a thread beside the core, once for all requests that have the same one.

Requests whose grammar isn't compiled yet are held back by the scheduler meanwhile; everybody else goes on.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from freehold.protocol import Generate, TokenTexts

if TYPE_CHECKING:  # loads late, in the thread, once somebody brings a grammar
    from freehold.grammar.factory import FreshMatcher, MatcherFactory

MAX_KEPT = 32
"""Compiled grammars that are kept for later requests."""


class Compiled(NamedTuple):
    """A message to the core: a grammar was compiled, or can't be.

    Attributes:
        result: what to make matchers of, or why there is none, in words.
    """

    source: bytes
    result: "FreshMatcher | str"


class Grammars:
    """Compiled grammars, and the requests that wait for one. For the core's thread.

    Args:
        deliver: brings a message to the core. Called in the compiling thread.
    """

    def __init__(self, deliver: Callable[[Compiled], None]) -> None:
        self._deliver = deliver
        self._kept: OrderedDict[bytes, FreshMatcher] = OrderedDict()
        self._waiting: dict[bytes, list[Generate]] = {}
        self._orders: SimpleQueue[bytes] = SimpleQueue()
        self._texts: TokenTexts | None = None

    def learn(self, texts: TokenTexts) -> None:
        """What the tokens write. Must come before the first grammar, and counts once."""
        if self._texts is None:
            self._texts = texts
            threading.Thread(target=self._compile_all, args=(texts,), name="engine-grammars", daemon=True).start()

    def find(self, source: bytes) -> "FreshMatcher | None":
        """A compiled grammar, if it is there."""
        if source in self._kept:
            self._kept.move_to_end(source)
        return self._kept.get(source)

    def order(self, generate: Generate) -> None:
        """Have a request's grammar compiled; the request waits."""
        assert generate.grammar is not None
        source = generate.grammar.source
        if source not in self._waiting:
            self._waiting[source] = []
            self._orders.put(source)
        self._waiting[source].append(generate)

    def take(self, compiled: Compiled) -> Sequence[Generate]:
        """Keep what was compiled; returns the requests that have waited for it."""
        if not isinstance(compiled.result, str):
            self._kept[compiled.source] = compiled.result
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return self._waiting.pop(compiled.source)

    def _compile_all(self, texts: TokenTexts) -> None:
        """The thread. It ends with the process."""
        factory: MatcherFactory | None = None  # made with the first order, as it takes a while
        while True:
            source = self._orders.get()
            try:
                factory = factory or _factory(texts)
                result: FreshMatcher | str = factory.compile(source)
            except Exception as error:
                result = str(error)
            self._deliver(Compiled(source, result))


def _factory(texts: TokenTexts) -> "MatcherFactory":
    from freehold.grammar.factory import MatcherFactory

    return MatcherFactory(texts)
