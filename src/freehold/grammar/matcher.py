"""The engine's side: which ids may come next, by llguidance."""

import random
from collections.abc import Sequence

import llguidance
import msgspec
import numpy as np
from numpy.typing import NDArray

from freehold.errors import GrammarError
from freehold.grammar.limits import parser_limits
from freehold.grammar.messages import Source
from freehold.protocol import Grammar, Sampling, TokenTexts

Mask = NDArray[np.uint32]

_OPTIONS = '\n%llguidance {"no_forcing": true}\n'
"""The model chooses among all spellings of a text by tokens, as it does elsewhere."""

TRIED_TOKENS = 40
"""So far is a grammar tried out before it is accepted."""

_sources = msgspec.msgpack.Decoder(Source)


class _Vocabulary(llguidance.TokenizerWrapper):
    """Tokens in the form that llguidance asks for. It never encodes: grammars leave the spelling to the model."""

    def __init__(self, tokens: TokenTexts) -> None:
        self.tokens = tokens.texts
        self.special_token_ids = tokens.control_ids
        self.bos_token_id = None
        self.eos_token_id = None  # type: ignore[assignment]  # llguidance adds an id of its own, past the last
        self.is_tokenizer_wrapper = True

    def __call__(self, text: str) -> list[int]:
        raise NotImplementedError("nothing is encoded here")


class FreshMatcher:
    """A compiled grammar: what one request's matcher begins with, and stays as it is."""

    def __init__(self, matcher: llguidance.LLMatcher, vocab_size: int, control_ids: frozenset[int]) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._control_ids = control_ids

    def begin(self, grammar: Grammar, sampling: Sampling) -> "GrammarMatcher":
        """A matcher for one request. Requests share nothing, so that one's masks can't depend on another."""
        return GrammarMatcher(
            self._matcher.deep_copy(),
            grammar,
            sampling,
            vocab_size=self._vocab_size,
            control_ids=self._control_ids,
        )

    def try_out(self) -> None:
        """Follow the grammar for some tokens.

        Raises:
            GrammarError: nothing may come at the beginning, or what may come takes too long to find out.
        """
        grammar, sampling = Grammar(source=b""), Sampling()
        matcher = self.begin(grammar, sampling)
        mask = np.zeros((1, self._vocab_size // 32 + 1), np.uint32)
        draw = random.Random(0)
        for _ in range(TRIED_TOKENS):
            mask[:] = 0
            matcher.fill(mask, ())
            allowed = np.flatnonzero(np.unpackbits(mask[0].view(np.uint8), bitorder="little"))
            if not allowed.size:
                break
            matcher.accept(int(draw.choice(allowed)))


class MatcherFactory:
    """Compiles grammars over one vocabulary. For one thread at a time."""

    def __init__(self, tokens: TokenTexts) -> None:
        self._vocab_size = len(tokens.texts)
        self._control_ids = frozenset(tokens.control_ids)
        self._tokenizer = llguidance.LLTokenizer(_Vocabulary(tokens), slices=llguidance.LLTokenizer.json_slices())

    def compile(self, source: bytes) -> FreshMatcher:
        """
        Raises:
            GrammarError: the source is no grammar, or one too large.
        """
        decoded = _sources.decode(source)
        limits = parser_limits(is_ambiguous=decoded.is_ambiguous)
        matcher = llguidance.LLMatcher(self._tokenizer, decoded.text + _OPTIONS, log_level=0, limits=limits)
        if matcher.is_error():
            raise GrammarError(matcher.get_error())
        return FreshMatcher(matcher, self._vocab_size, self._control_ids)


class GrammarMatcher:
    """One request's place in its grammar. The rules are `freehold.protocol.Grammar`'s.

    Args:
        matcher: fresh, and this one's own.
        control_ids: ids without text.
    """

    def __init__(
        self,
        matcher: llguidance.LLMatcher,
        grammar: Grammar,
        sampling: Sampling,
        *,
        vocab_size: int,
        control_ids: frozenset[int],
    ) -> None:
        self._matcher = matcher
        self._grammar = grammar
        self._min_tokens = sampling.min_tokens
        self._stop_ids = sampling.stop_ids
        self._end_id = vocab_size
        self._buffer = np.zeros(vocab_size // 32 + 1, np.uint32)
        self._ends = tuple(sorted(sampling.stop_ids))
        self._early_ends = tuple(sorted(sampling.stop_ids & control_ids))
        self._num_output = 0
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
            _forbid(mask, self._ends)
            may_end = may_end and not mask.any()
        if may_end:
            _allow(mask, self._ends)

    def _fill_free(self, mask: Mask) -> None:
        assert self._grammar.after_id is not None
        if self._grammar.max_free is not None and self._num_output >= self._grammar.max_free:
            _allow(mask, (self._grammar.after_id,))
        else:
            mask[:] = np.uint32(0xFFFFFFFF)
            _forbid(mask, self._ends if self._num_output < self._min_tokens else self._early_ends)


def _allow(mask: Mask, token_ids: Sequence[int]) -> None:
    for token_id in token_ids:
        mask[token_id // 32] |= np.uint32(1 << token_id % 32)


def _forbid(mask: Mask, token_ids: Sequence[int]) -> None:
    for token_id in token_ids:
        mask[token_id // 32] &= ~np.uint32(1 << token_id % 32)
