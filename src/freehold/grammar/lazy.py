"""One request's place in a grammar that holds in parts of its answer only: `freehold.protocol.Trigger` has the rules.

A token may complete what triggers a grammar and go on beyond that. What it goes on with must be allowed too: this is
the only thing that free text is held to.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from enum import Enum, auto

import llguidance
import numpy as np

from freehold.errors import GrammarError
from freehold.grammar.matcher import GrammarMatcher, follow_text
from freehold.grammar.vocabulary import ALL, SPACE, Mask, Vocabulary, forbid
from freehold.protocol import Grammar, Sampling, Trigger


class _Part(Enum):
    BEGINNING = auto()  # reasoning may still come
    REASONING = auto()
    REST = auto()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in its answer a request is, outside what its grammar is about.

    Attributes:
        tail: the end of the text that may be the beginning of what is looked for.
    """

    part: _Part
    tail: bytes = b""


class LazyMatcher:
    """A `freehold.engine.masks.Matcher`.

    Args:
        matcher, head: fresh, of a compiled grammar. They stay so.
        grammar: has a trigger.
    """

    def __init__(
        self,
        matcher: llguidance.LLMatcher,
        head: llguidance.LLMatcher | None,
        grammar: Grammar,
        sampling: Sampling,
        *,
        vocabulary: Vocabulary,
    ) -> None:
        trigger = grammar.trigger or Trigger()
        self._fresh = matcher
        self._fresh_head = head
        self._trigger = trigger
        self._sampling = sampling
        self._vocabulary = vocabulary
        self._thoughts = trigger.thoughts or (b"", b"")  # not looked at where there are none
        self._literals = (*trigger.openers, *(trigger.thoughts or ()))
        self._ends = tuple(sorted(sampling.stop_ids))
        self._buffer = np.zeros(vocabulary.num_words, np.uint32)
        self._num_output = 0
        self._follower: GrammarMatcher | None = None  # in the grammar; or, while there is a head, perhaps in it
        self._head: llguidance.LLMatcher | None = None
        if trigger.thoughts is not None and trigger.is_open:
            self._place = _Place(_Part.REASONING)
        else:
            self._place = _Place(_Part.REST if trigger.thoughts is None else _Part.BEGINNING)
            self._look_out(b"")

    def fill(self, masks: Mask, drafts: Sequence[int]) -> None:
        """See `freehold.engine.masks.Matcher`.

        Raises:
            GrammarError: what may come next takes too long to find out.
        """
        ahead = self._copy() if drafts else self
        for index, mask in enumerate(masks):
            ahead._fill(mask)
            if index == len(drafts) or not ahead._follow(drafts[index]):
                break

    def accept(self, token_id: int) -> None:
        """See `freehold.engine.masks.Matcher`.

        Raises:
            GrammarError: the grammar doesn't allow this id here.
        """
        if token_id not in self._sampling.stop_ids and not self._follow(token_id):
            raise GrammarError(f"token {token_id} came, which isn't allowed here")

    def _copy(self) -> "LazyMatcher":
        twin = copy(self)
        twin._follower = None if self._follower is None else self._follower.copy()
        twin._head = None if self._head is None else self._head.deep_copy()
        return twin

    def _fill(self, mask: Mask) -> None:
        if self._follower is not None and self._head is None:
            self._follower.fill(mask[np.newaxis], ())
            return
        mask[:] = ALL
        if self._num_output < self._sampling.min_tokens:
            forbid(mask, self._ends)
        if self._follower is not None:
            mask[: self._buffer.size] &= ~self._wrong_starts(self._follower)[: mask.size]
        forbid(mask, self._overruns())

    def _wrong_starts(self, follower: GrammarMatcher) -> Mask:
        """Ids that begin as what the grammar is about does, and aren't allowed by it."""
        assert self._head is not None
        wrong = np.zeros(self._buffer.size, np.uint32)
        self._head.unsafe_compute_mask_ptr(wrong.ctypes.data, wrong.nbytes)
        if self._head.is_error():
            raise GrammarError(self._head.get_error())
        self._buffer[:] = 0
        follower.fill(self._buffer[np.newaxis], ())
        wrong &= ~self._buffer
        forbid(wrong, (self._vocabulary.end_id,))
        return wrong

    def _follow(self, token_id: int) -> bool:
        """Go on by one id; False if it isn't allowed, or ends the answer."""
        if token_id in self._sampling.stop_ids:
            return False
        self._num_output += 1
        if self._follower is not None and self._head is not None:
            if self._is_head(token_id, self._head):
                return self._follower.follow_all((token_id,))
            self._follower = self._head = None
        if self._follower is None:
            self._read(self._vocabulary.text(token_id, self._literals))
            return True
        return self._follow_grammar(token_id, self._follower)

    def _is_head(self, token_id: int, head: llguidance.LLMatcher) -> bool:
        """Whether the text still begins as what the grammar is about does. If it does so beyond doubt, the grammar
        holds."""
        if token_id >= self._vocabulary.end_id or head.try_consume_tokens([token_id]) != 1:
            return False
        if head.is_accepting():
            self._head = None
        if self._place.part is _Part.BEGINNING and self._vocabulary.text(token_id, ()).strip(SPACE):
            self._place = _Place(_Part.REST)
        return True

    def _follow_grammar(self, token_id: int, follower: GrammarMatcher) -> bool:
        is_allowed = follower.follow_all((token_id,))
        # Without a text that says so, nothing tells where more of its kind begins: then the answer ends, if it can.
        if follower.is_complete and (self._fresh_head is None or not self._ends):
            self._follower = None
        return is_allowed

    def _overruns(self) -> Iterable[int]:
        """Ids that would go beyond what triggers the grammar, and against it."""
        if self._place.part is not _Part.REASONING:
            literals: Sequence[bytes] = self._trigger.openers
        else:  # its end triggers what may come at the answer's beginning
            literals = () if self._fresh_head is None else self._thoughts[1:]
        for literal in literals:
            for token_id, rest in self._vocabulary.overruns(literal, self._place.tail):
                if not self._may_begin_with(rest):
                    yield token_id

    def _may_begin_with(self, rest: bytes) -> bool:
        is_head = self._fresh_head is None or follow_text(self._fresh_head.deep_copy(), rest, self._vocabulary)
        return not is_head or follow_text(self._fresh.deep_copy(), rest, self._vocabulary)

    def _read(self, text: bytes) -> None:
        """Look for what begins or ends reasoning, and for what triggers the grammar."""
        part, text = self._place.part, self._place.tail + text
        longest = 1
        if part is _Part.BEGINNING:
            held = text.lstrip(SPACE)
            begin = self._thoughts[0]
            if held.startswith(begin):
                part, text = _Part.REASONING, held[len(begin) :]
            elif not begin.startswith(held):
                part = _Part.REST
        if part is _Part.REASONING:
            _, found, rest = text.partition(self._thoughts[1])
            if found:
                self._place = _Place(_Part.REST)
                self._look_out(rest)
                return
            longest = len(self._thoughts[1])
        else:
            places = [(place, opener) for opener in self._trigger.openers if (place := text.find(opener)) >= 0]
            if places:
                place, opener = min(places)
                self._place = _Place(_Part.REST)
                self._begin(text[place + len(opener) :])
                return
            longest = max(map(len, self._trigger.openers), default=1)
        is_undecided = part is _Part.BEGINNING
        self._place = _Place(part, text if is_undecided else text[max(0, len(text) - longest + 1) :])

    def _look_out(self, rest: bytes) -> None:
        """What the grammar is about may begin here, with a text that has come already."""
        if self._fresh_head is not None:
            self._begin(rest)
        elif rest:
            self._read(rest)

    def _begin(self, rest: bytes) -> None:
        """The grammar, or perhaps its beginning, begins here, with a text that has come already."""
        head = None if self._fresh_head is None else self._fresh_head.deep_copy()
        if head is not None and not follow_text(head, rest, self._vocabulary):
            self._read(rest)
            return
        self._head = None if head is None or head.is_accepting() else head
        self._follower = GrammarMatcher(
            self._fresh.deep_copy(),
            Grammar(source=b""),
            self._sampling,
            vocabulary=self._vocabulary,
            num_before=self._num_output,
        )
        self._follower.follow_text(rest)
