"""Finding stop strings in a stream of text, holding back no more than must be."""

from collections.abc import Sequence


class StopMatcher:
    """Looks for stop strings in text that comes in pieces.

    The stop string that ends first in the text wins; of several that end at the same place, the longest. What is held
    back is always the longest end of the text that is a true beginning of some stop string, and nothing else, so text
    that can't become a stop string passes whole. Each character costs one step of an automaton per stop string
    (Knuth, Morris, Pratt), however the text is cut.

    Attributes:
        hit: the stop string that was found. The text ends before it.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        """
        Arguments:
            stops: none of them empty.
        """
        if "" in stops:
            raise ValueError("an empty stop string stops everything")
        self.hit: str | None = None
        # Longest first, so that the first to end at a place is the one to take.
        self._automata = [_Automaton(stop) for stop in sorted(set(stops), key=len, reverse=True)]
        self._first_chars = {stop[0] for stop in stops}
        self._held = ""

    @property
    def held(self) -> str:
        """Text that was taken in and not given out."""
        return self._held

    def push(self, text: str) -> str:
        """Text that is certain not to belong to a stop string. Empty after a hit."""
        if self.hit is not None:
            return ""
        if not self._held and not any(char in text for char in self._first_chars):
            return text
        whole = self._held + text
        for end, char in enumerate(text, start=len(self._held) + 1):
            found = None
            for automaton in self._automata:
                if automaton.step(char) and found is None:
                    found = automaton
            if found is not None:
                self.hit = found.stop
                self._held = ""
                return whole[: end - len(found.stop)]
        keep = max((automaton.matched for automaton in self._automata), default=0)
        self._held = whole[len(whole) - keep :]
        return whole[: len(whole) - keep]

    def finish(self) -> str:
        """The held text: nothing more comes, so it was no stop string. What is pushed later is looked at afresh."""
        held, self._held = self._held, ""
        for automaton in self._automata if held else ():
            automaton.matched = 0
        return held


class _Automaton:
    """How much of one stop string the text ends with."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        # border[n]: length of the longest true beginning of stop[:n] that it also ends with
        self._border = [0, 0]
        for char in stop[1:]:
            border = self._border[-1]
            while border and stop[border] != char:
                border = self._border[border]
            self._border.append(border + (stop[border] == char))

    def step(self, char: str) -> bool:
        """Take in a character; whether the stop string is complete."""
        while self.matched and self.stop[self.matched] != char:
            self.matched = self._border[self.matched]
        self.matched += self.stop[self.matched] == char
        return self.matched == len(self.stop)
