"""One request's place in its grammar: which ids may come next, by llguidance."""

from collections.abc import Sequence
from copy import copy

import llguidance
import numpy as np

from freehold.errors import GrammarError
from freehold.grammar.vocabulary import ALL, Mask, Vocabulary, allow, forbid
from freehold.protocol import Grammar, Sampling


class GrammarMatcher:
    """One request's place in its grammar. The rules are `freehold.protocol.Grammar`'s.

    Args:
        matcher: fresh, and this one's own.
        num_before: ids of the answer before it.
    """

    def __init__(
        self,
        matcher: llguidance.LLMatcher,
        grammar: Grammar,
        sampling: Sampling,
        *,
        vocabulary: Vocabulary,
        num_before: int = 0,
    ) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._grammar = grammar
        self._min_tokens = sampling.min_tokens
        self._stop_ids = sampling.stop_ids
        self._end_id = vocabulary.end_id
        self._buffer = np.zeros(vocabulary.num_words, np.uint32)
        self._ends = tuple(sorted(sampling.stop_ids))
        self._early_ends = tuple(sorted(sampling.stop_ids & vocabulary.control_ids))
        self._num_output = num_before
        self._begin = 0 if grammar.after_id is None else None  # ids before the first that the grammar sees, once known

    def fill(self, masks: Mask, drafts: Sequence[int]) -> None:
        """See `freehold.engine.masks.Matcher`.

        Raises:
            GrammarError: what may come next takes too long to find out.
        """
        num_before = self._num_output
        for index, mask in enumerate(masks):
            self._fill(mask)
            if index == len(drafts) or not self._follow(drafts[index]):
                break
        self._return_to(num_before)

    def accept(self, token_id: int) -> None:
        """See `freehold.engine.masks.Matcher`.

        Raises:
            GrammarError: the grammar doesn't allow this id here.
        """
        if token_id not in self._stop_ids and not self._follow(token_id):
            raise GrammarError(self._matcher.get_error() or f"token {token_id} came, which isn't allowed here")

    @property
    def may_end(self) -> bool:
        """The text is complete here, though it may go on."""
        return self._begin is not None and self._matcher.is_accepting()

    @property
    def is_complete(self) -> bool:
        """The text is complete, and can't go on."""
        return self._begin is not None and self._matcher.is_stopped()

    def follow_text(self, text: bytes) -> bool:
        """Begin with a text that came within an earlier id; returns whether that is allowed."""
        return follow_text(self._matcher, text, self._vocabulary)

    def copy(self) -> "GrammarMatcher":
        """One at the same place, that goes its own way."""
        twin = copy(self)
        twin._matcher = self._matcher.deep_copy()
        return twin

    def follow_all(self, token_ids: Sequence[int]) -> bool:
        """Go on by some ids, as far as they are allowed; returns whether all of them are."""
        return all(map(self._follow, token_ids))

    def _follow(self, token_id: int) -> bool:
        """Go on by one id; False if it isn't allowed, or ends the answer."""
        if self._begin is None:
            if token_id == self._grammar.after_id:
                self._begin = self._num_output + 1
        elif token_id in self._stop_ids or not self._is_text(token_id):
            return False
        self._num_output += 1
        return True

    def _is_text(self, token_id: int) -> bool:
        """Let the grammar take an id, if it allows it. Models may have more ids than their vocabularies."""
        return token_id < self._end_id and self._matcher.try_consume_tokens([token_id]) == 1

    def _return_to(self, num_output: int) -> None:
        """Forget the ids after the first `num_output`."""
        if self._begin is not None:
            num_followed = self._num_output - max(num_output, self._begin)
            if num_followed > 0 and not self._matcher.rollback(num_followed):
                raise GrammarError(self._matcher.get_error())
            if self._begin > num_output:
                self._begin = None
        self._num_output = num_output

    def _fill(self, mask: Mask) -> None:
        if self._begin is None:
            self._fill_free(mask)
            return
        self._matcher.unsafe_compute_mask_ptr(self._buffer.ctypes.data, self._buffer.nbytes)
        if self._matcher.is_error():
            raise GrammarError(self._matcher.get_error())
        word, bit = divmod(self._end_id, 32)
        may_end = bool(self._buffer[word] >> bit & 1)
        self._buffer[word] &= ~np.uint32(1 << bit)
        mask[: self._buffer.size] = self._buffer[: mask.size]
        if self._num_output < self._min_tokens:
            forbid(mask, self._ends)
            may_end = may_end and not mask.any()
        if may_end:
            allow(mask, self._ends)

    def _fill_free(self, mask: Mask) -> None:
        assert self._grammar.after_id is not None
        if self._grammar.max_free is not None and self._num_output >= self._grammar.max_free:
            allow(mask, (self._grammar.after_id,))
        else:
            mask[:] = ALL
            forbid(mask, self._ends if self._num_output < self._min_tokens else self._early_ends)


def follow_text(matcher: llguidance.LLMatcher, text: bytes, vocabulary: Vocabulary) -> bool:
    """Let a matcher take a text; returns whether it is allowed. If not, the matcher is of no further use."""
    ids = vocabulary.spelled(text)
    return ids is not None and matcher.try_consume_tokens(list(ids)) == len(ids)
