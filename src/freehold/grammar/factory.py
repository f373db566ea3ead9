"""The engine's side: grammars are compiled once, and followed by a matcher for each request."""

import random

import llguidance
import msgspec
import numpy as np

from freehold.errors import GrammarError
from freehold.grammar.lazy import LazyMatcher
from freehold.grammar.limits import parser_limits
from freehold.grammar.matcher import GrammarMatcher
from freehold.grammar.messages import Source
from freehold.grammar.vocabulary import Vocabulary
from freehold.protocol import Grammar, Sampling, TokenTexts

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

    def __init__(
        self, matcher: llguidance.LLMatcher, vocabulary: Vocabulary, head: llguidance.LLMatcher | None = None
    ) -> None:
        """
        Args:
            head: follows what begins as the grammar's texts do; None: the grammar holds from its beginning.
        """
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._head = head

    def begin(self, grammar: Grammar, sampling: Sampling) -> GrammarMatcher | LazyMatcher:
        """A matcher for one request. Requests share nothing, so that one's masks can't depend on another."""
        if grammar.trigger is None:
            return GrammarMatcher(self._matcher.deep_copy(), grammar, sampling, vocabulary=self._vocabulary)
        return LazyMatcher(self._matcher, self._head, grammar, sampling, vocabulary=self._vocabulary)

    def try_out(self) -> None:
        """Follow the grammar for some tokens.

        Raises:
            GrammarError: nothing may come at the beginning, or what may come takes too long to find out.
        """
        matcher = self.begin(Grammar(source=b""), Sampling())
        mask = np.zeros((1, self._vocabulary.num_words), np.uint32)
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
        self._vocabulary = Vocabulary(tokens)
        self._tokenizer = llguidance.LLTokenizer(_Vocabulary(tokens), slices=llguidance.LLTokenizer.json_slices())

    def compile(self, source: bytes) -> FreshMatcher:
        """
        Raises:
            GrammarError: the source is no grammar, or one too large.
        """
        decoded = _sources.decode(source)
        head = self._matcher(decoded.head, is_ambiguous=False) if decoded.head else None
        return FreshMatcher(self._matcher(decoded.text, is_ambiguous=decoded.is_ambiguous), self._vocabulary, head)

    def _matcher(self, text: str, *, is_ambiguous: bool) -> llguidance.LLMatcher:
        limits = parser_limits(is_ambiguous=is_ambiguous)
        matcher = llguidance.LLMatcher(self._tokenizer, text + _OPTIONS, log_level=0, limits=limits)
        if matcher.is_error():
            raise GrammarError(matcher.get_error())
        return matcher
