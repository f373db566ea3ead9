"""Which ids a request may sample, where that isn't all: one matcher a request, asked before each step's sampling.

A grammar is such a matcher. While a step's forward pass runs, the ids of the step before become known, matchers follow
them, and their masks go to the device.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from freehold.engine.thinking import ThinkingMatcher
from freehold.errors import GrammarError
from freehold.protocol import Event, Finish, Generate, RequestId, Tokens
from freehold.sched.plan import PlannedRow, StepPlan

Mask = NDArray[np.uint32]

_EMPTY = (
    "the form that the answer must have and allowed_token_ids, min_tokens or ignore_eos leave no token that may come "
    "next; allow more"
)


class Matcher(Protocol):
    """What one request may sample next. Whatever a method raises fails the request."""

    def fill(self, masks: Mask, drafts: Sequence[int]) -> None:
        """Write which ids may come next, and after each of some guesses.

        Args:
            masks: (drafts + 1, words), all zero: bit t of row i allows id t after the first i drafts. What is written
                where these can't come is of no interest.
        """
        ...

    def accept(self, token_id: int) -> None:
        """This id came next."""
        ...


class AllowedIds:
    """A matcher that allows the same ids everywhere.

    Attributes:
        mask: uint32 (words,), bit t of the whole set if id t is allowed.
    """

    def __init__(self, token_ids: Sequence[int], vocab_size: int) -> None:
        bits = np.zeros(-(-vocab_size // 32) * 32, np.uint8)
        bits[list(token_ids)] = 1
        self.mask = np.packbits(bits, bitorder="little").view("<u4").astype(np.uint32)

    def fill(self, masks: Mask, drafts: Sequence[int]) -> None:  # noqa: ARG002
        """The set, whatever came before."""
        masks[:] = self.mask

    def accept(self, token_id: int) -> None:
        """Changes nothing."""


class Both:
    """A matcher that allows what two others allow."""

    def __init__(self, first: Matcher, second: Matcher) -> None:
        self._first = first
        self._second = second

    def fill(self, masks: Mask, drafts: Sequence[int]) -> None:
        """What both allow."""
        self._first.fill(masks, drafts)
        others = np.zeros_like(masks)
        self._second.fill(others, drafts)
        masks &= others

    def accept(self, token_id: int) -> None:
        """Tells both."""
        self._first.accept(token_id)
        self._second.accept(token_id)


def matcher_of(generate: Generate, vocab_size: int, grammar: Matcher | None) -> Matcher | None:
    """What says which ids a request may sample; None if all.

    Args:
        grammar: follows the request's grammar, if it has one.
    """
    matchers = [] if grammar is None else [grammar]
    if generate.thinking is not None:
        matchers.append(ThinkingMatcher(generate.thinking))
    if generate.sampling.allowed_ids:
        matchers.append(AllowedIds(generate.sampling.allowed_ids, vocab_size))
    return reduce(Both, matchers) if matchers else None


class MaskFailure(NamedTuple):
    """Why a request can't go on."""

    request_id: RequestId
    code: str
    message: str


class Masks:
    """The matchers of all requests that have one and have not ended."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._all = AllowedIds(range(vocab_size), vocab_size).mask
        self._matchers: dict[RequestId, Matcher] = {}
        self._broken: dict[RequestId, MaskFailure] = {}

    def __len__(self) -> int:
        return len(self._matchers)

    def add(self, generate: Generate, grammar: Matcher | None = None) -> None:
        """A request will get ids from here on; `grammar` as in `matcher_of`."""
        matcher = matcher_of(generate, self._vocab_size, grammar)
        if matcher is not None:
            self._matchers[generate.request_id] = matcher

    def follow(self, events: Sequence[Event]) -> None:
        """Requests have got ids, or ended."""
        for event in events if self._matchers else ():
            matcher = self._matchers.get(event.request_id)
            if matcher is None:
                continue
            if isinstance(event, Tokens):
                self._accept(event.request_id, matcher, event.token_ids)
            elif isinstance(event, Finish):
                del self._matchers[event.request_id]
                self._broken.pop(event.request_id, None)

    def fill(self, plan: StepPlan) -> tuple[Mapping[int, Mask], Sequence[MaskFailure]]:
        """The masks of a submitted step's deferred rows, by row; all ids before them have been followed.

        Returns:
            with them, the requests that must end. Their rows, and those of requests that have ended, get masks that
            allow everything: what they sample is of no interest.
        """
        masks: dict[int, Mask] = {}
        failures: list[MaskFailure] = []
        for index, row in enumerate(plan.rows):
            if not row.deferred:
                continue
            masks[index] = np.zeros((row.num_sampled, self._all.size), np.uint32)
            failure = self._fill_row(row, masks[index])
            if failure is not None:
                failures.append(failure)
        return masks, failures

    def _accept(self, request_id: RequestId, matcher: Matcher, token_ids: Sequence[int]) -> None:
        try:
            for token_id in token_ids:
                matcher.accept(token_id)
        except Exception as error:
            self._broken[request_id] = _raised(request_id, error)

    def _fill_row(self, row: PlannedRow, masks: Mask) -> MaskFailure | None:
        """Fill a row's masks; if that fails, say why, and let them allow everything."""
        matcher = self._matchers.get(row.request_id)
        failure = self._broken.get(row.request_id)
        if matcher is not None and failure is None:
            drafts = row.token_ids[len(row.token_ids) - row.num_sampled + 1 :]
            try:
                matcher.fill(masks, drafts)
            except Exception as error:
                failure = _raised(row.request_id, error)
            else:
                masks &= self._all
                if masks[0].any():
                    return None
                failure = MaskFailure(row.request_id, "mask_empty", _EMPTY)
        masks[:] = self._all
        return failure


def _raised(request_id: RequestId, error: Exception) -> MaskFailure:
    if isinstance(error, GrammarError):
        return MaskFailure(request_id, "grammar_too_complex", f"the grammar can't be followed any further: {error}")
    message = f"what may come next could not be determined: {type(error).__name__}: {error}"
    return MaskFailure(request_id, "mask_error", message)
