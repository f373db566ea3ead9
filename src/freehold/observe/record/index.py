"""Where the frames of each request are: 16 bytes a request, however many there are."""

from array import array
from collections.abc import Iterator
from typing import NamedTuple

_PAGE_REQUESTS = 256
_OFFSET_BITS = 40


class Place(NamedTuple):
    """Where a frame is: the position of its segment in the list, and its offset there in bytes, which is never 0."""

    segment: int
    offset: int


class Places(NamedTuple):
    """Of one request's frames; None for what isn't there."""

    begun: Place | None
    ended: Place | None


class Index:
    """Places by run and number. Numbers of a run stand close together, so that pages of them are kept.

    Attributes:
        num_begun: requests whose beginning is there.
        num_headless: those of which only the end is.
    """

    def __init__(self) -> None:
        self.num_begun = self.num_headless = 0
        # By run and number of the page: begun and ended of its requests in turns, 0 for what isn't there.
        self._pages: dict[tuple[int, int], array[int]] = {}

    def put_begun(self, run: int, number: int, place: Place) -> None:
        """Note where a request's beginning is."""
        page, at = self._slot(run, number)
        if not page[at]:
            self.num_begun += 1
            self.num_headless -= page[at + 1] > 0
        page[at] = place.segment << _OFFSET_BITS | place.offset

    def put_ended(self, run: int, number: int, place: Place) -> None:
        """Note where its end is."""
        page, at = self._slot(run, number)
        self.num_headless += not (page[at] or page[at + 1])
        page[at + 1] = place.segment << _OFFSET_BITS | place.offset

    def get(self, run: int, number: int) -> Places:
        """Where a request's frames are."""
        page = self._pages.get((run, number // _PAGE_REQUESTS))
        return Places(None, None) if page is None else _places(page, number % _PAGE_REQUESTS * 2)

    def begun(self, *, newest_first: bool = False) -> Iterator[Places]:
        """All requests whose beginning is there, in the order in which they began, or the other way round."""
        slots = range(0, 2 * _PAGE_REQUESTS, 2)
        for key in sorted(self._pages, reverse=newest_first):
            page = self._pages[key]
            for at in reversed(slots) if newest_first else slots:
                if page[at]:
                    yield _places(page, at)

    def _slot(self, run: int, number: int) -> tuple["array[int]", int]:
        key = (run, number // _PAGE_REQUESTS)
        page = self._pages.get(key)
        if page is None:
            page = self._pages[key] = array("Q", bytes(16 * _PAGE_REQUESTS))
        return page, number % _PAGE_REQUESTS * 2


def _places(page: "array[int]", at: int) -> Places:
    return Places(_place(page[at]), _place(page[at + 1]))


def _place(packed: int) -> Place | None:
    return Place(packed >> _OFFSET_BITS, packed & (1 << _OFFSET_BITS) - 1) if packed else None
