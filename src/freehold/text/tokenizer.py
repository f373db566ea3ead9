"""Text to token ids and back.

Ordinary text never yields control tokens, whatever it contains: the pipelines match none, and what comes out is
checked. Only callers that say `allow_control`, and chat templates (`freehold.text.rendered`), write them.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

from tokenizers import Tokenizer as Backend

from freehold.errors import RequestError
from freehold.protocol import TokenTexts
from freehold.text.bounds import TextBound, bound_of
from freehold.text.detok import Detokenizer
from freehold.text.literals import LiteralFinder
from freehold.text.spelling import byte_level_bytes, sentencepiece_bytes
from freehold.text.vocabulary import Vocabulary


class Tokenizer:
    """A model's tokenizer. Safe to use from many threads; encoding releases the GIL.

    Attributes:
        vocabulary: tokens and their kinds.
        vocab_size: valid ids are 0 to ``vocab_size - 1``. The model may have more rows, for padding.
        bos_id: None if the model has no BOS.
        eos_ids: ids that end an answer (`freehold.text.end_of_turn` has the rule).
        add_bos: whether raw text begins with BOS.
        special_tokens: the names that chat templates know, such as ``bos_token``, with their literals.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.vocab_size = vocabulary.size
        self.bos_id = vocabulary.bos_id
        self.eos_ids = vocabulary.eos_ids
        self.add_bos = vocabulary.add_bos and vocabulary.bos_id is not None
        self.special_tokens: Mapping[str, str] = vocabulary.special_tokens
        control_ids = {control.token_id for control in vocabulary.controls.values()}
        # An alphabet with gaps may honestly yield the unknown token for a character it lacks.
        self._forbidden = frozenset(control_ids - {vocabulary.unknown_id})
        self._bytes: list[bytes | None] = [None] * vocabulary.size
        self._spelled: dict[int, tuple[str, bytes | None]] = {}

    @cached_property
    def controls(self) -> LiteralFinder:
        """Finds the literals of control tokens."""
        return LiteralFinder(self.vocabulary.controls)

    @cached_property
    def _bound(self) -> TextBound | None:
        texts = [
            (self.vocabulary.spelled(token_id) or "").encode("utf-8", "surrogatepass")
            if self.is_control(token_id)
            else self._spelled_bytes(token_id)
            for token_id in range(self.vocab_size)
        ]
        return bound_of(self.vocabulary, texts)

    def min_tokens(self, text: str) -> int:
        """Tokens that a text has at least, found without tokenizing it; 0 if nothing can be said."""
        return 0 if self._bound is None else self._bound.min_tokens(text)

    @cached_property
    def _added(self) -> LiteralFinder:
        return LiteralFinder(self.vocabulary.added)

    def encode(
        self, text: str, *, add_bos: bool | None = None, allow_control: bool = False, param: str = "prompt"
    ) -> list[int]:
        """Ids of a text.

        Arguments:
            add_bos: begin with BOS; None does what the model's metadata says. Text that begins with the literal BOS
                under `allow_control` gets no second one.
            allow_control: literals of control tokens become control tokens. For text that is trusted.
            param: name of the request's field, for errors.

        Raises:
            RequestError: the text holds half a surrogate pair, or its control tokens can't be spelled as text.
        """
        check_text(text, param)

        def encode_text(piece: str, at_start: bool) -> list[int]:
            return self.encode_piece(piece, at_start=at_start, param=param)

        if allow_control:
            ids = self.encode_literals(text, self.controls.finditer(text), encode_text)
        else:
            ids = encode_text(text, True)
        if (self.add_bos if add_bos is None else add_bos) and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def encode_piece(self, text: str, *, at_start: bool, match_added: bool = True, param: str = "prompt") -> list[int]:
        """Ids of a piece of a longer text, never control ids.

        Arguments:
            at_start: the piece begins the text, so a SentencePiece vocabulary puts its dummy prefix before it.
            match_added: literals such as ``<think>`` become their token; else they are spelled out.
        """
        if not text:
            return []
        vocabulary = self.vocabulary
        backend = vocabulary.middle if match_added else vocabulary.bare
        if at_start:
            if match_added:
                backend = vocabulary.start
            if vocabulary.start_prefix and not (match_added and self._added.starts(text)):
                text = vocabulary.start_prefix + text
        ids = _encode(backend, text)
        if self._forbidden.isdisjoint(ids):
            return ids
        return self._encode_broken(backend, text, param)

    def _encode_broken(self, backend: Backend, text: str, param: str) -> list[int]:
        """Encode text whose control literals come out as control tokens: cut each of them in half."""
        cuts = [(match.start() + match.end()) // 2 for match in self.controls.finditer(text)]
        later = self.vocabulary.middle if backend is self.vocabulary.start else backend
        ids: list[int] = []
        for begin, end in pairwise([0, *cuts, len(text)]):
            if end > begin:
                ids += _encode(later if begin else backend, text[begin:end])
        if self._forbidden.isdisjoint(ids):
            return ids
        token_id = next(token_id for token_id in ids if token_id in self._forbidden)
        raise RequestError(
            f"{param} holds {self.vocabulary.spelled(token_id)!r}, a control token that can't be spelled as text; "
            "remove it",
            param=param,
            code="control_token",
        )

    def encode_literals(
        self,
        text: str,
        matches: Iterable[re.Match[str]],
        encode_text: Callable[[str, bool], list[int]],
    ) -> list[int]:
        """Ids of a text in which some literals become their token.

        Arguments:
            matches: places of the literals, left to right, each a control or an added token.
            encode_text: gives the ids of what lies between; its second argument tells whether the text begins there.
        """
        vocabulary = self.vocabulary
        ids: list[int] = []
        done = 0
        for match in matches:
            literal = match[0]
            token = vocabulary.controls[literal] if literal in vocabulary.controls else vocabulary.added[literal]
            before = text[done : match.start()]
            ids += encode_text(before.rstrip() if token.takes_left else before, done == 0)
            ids.append(token.token_id)
            done = match.end()
            if token.takes_right:
                done = len(text) - len(text[done:].lstrip())
        return ids + encode_text(text[done:], done == 0)

    def decode(self, ids: Iterable[int], *, skip_control: bool = True) -> str:
        """Text of ids from the beginning of a text. Bytes that are no UTF-8 become U+FFFD.

        Arguments:
            skip_control: leave control tokens out; else write their literals.
        """
        if skip_control:
            raw = b"".join(map(self.token_bytes, ids))
        else:
            raw = b"".join(self._literal_bytes(token_id) for token_id in ids)
        if self.vocabulary.strips_space:
            raw = raw.removeprefix(b" ")
        return raw.decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes that a token adds to the text: none for control and unused tokens, and for the rows of the model that
        lie past the vocabulary.

        Raises:
            ValueError: a negative id.
        """
        if token_id < 0:
            raise ValueError(f"token id {token_id} is negative")
        if token_id >= self.vocab_size:
            return b""
        known = self._bytes[token_id]
        if known is None:
            known = self._bytes[token_id] = b"" if self.is_control(token_id) else self._spelled_bytes(token_id)
        return known

    def token_texts(self) -> TokenTexts:
        """What all tokens write, for grammars."""
        return TokenTexts(
            tuple(map(self._literal_bytes, range(self.vocab_size))),
            tuple(filter(self.is_control, range(self.vocab_size))),
        )

    def spell(self, token_id: int) -> tuple[str, bytes | None]:
        """A token by itself, for people, and the bytes that it adds to a text.

        Returns:
            Its text, in which bytes that are no whole character are escaped, as in ``\\xf0``; and its bytes. A control
            token is its literal and has none.
        """
        known = self._spelled.get(token_id)
        if known is None:
            raw = self.token_bytes(token_id)
            text = self._literal_bytes(token_id).decode("utf-8", "backslashreplace")
            known = self._spelled[token_id] = (text or f"<{token_id}>", raw or None)
        return known

    def is_control(self, token_id: int) -> bool:
        """Whether an id is a control, unknown or unused token: it has no text of its own."""
        return token_id in self.vocabulary.silent_ids

    def detokenizer(
        self, prompt_ids: Sequence[int] = (), *, skip_control: bool = True, literals: Mapping[int, str] | None = None
    ) -> Detokenizer:
        """An incremental decoder for what follows the prompt; `skip_control` as in `decode`.

        Arguments:
            literals: control ids that aren't skipped, with what they add to the text.
        """
        token_bytes = self.token_bytes if skip_control else self._literal_bytes
        if literals:
            written = {token_id: literal.encode() for token_id, literal in literals.items()}
            return Detokenizer(
                lambda token_id: written[token_id] if token_id in written else token_bytes(token_id),
                prompt_ids,
                strips_space=self.vocabulary.strips_space,
            )
        return Detokenizer(token_bytes, prompt_ids, strips_space=self.vocabulary.strips_space)

    def check_ids(self, ids: Sequence[int], *, param: str, vocab_size: int | None = None) -> None:
        """Refuse ids that the model doesn't have.

        Arguments:
            param: name of the request's field.
            vocab_size: rows of the model, if more than the tokenizer has tokens.

        Raises:
            RequestError: an id is negative, too large, or no integer.
        """
        size = self.vocab_size if vocab_size is None else vocab_size
        for position, token_id in enumerate(ids):
            if isinstance(token_id, bool) or not isinstance(token_id, int):
                raise RequestError(
                    f"{param}[{position}] is {token_id!r}; token ids are integers", param=param, code="invalid_type"
                )
            if not 0 <= token_id < size:
                raise RequestError(
                    f"{param}[{position}] is {token_id}; this model has token ids 0 to {size - 1}",
                    param=param,
                    code="token_id_out_of_range",
                )

    def _spelled_bytes(self, token_id: int) -> bytes:
        vocabulary = self.vocabulary
        if token_id in vocabulary.byte_ids:
            return vocabulary.byte_ids[token_id]
        spelled = vocabulary.spelled(token_id)
        if spelled is None:
            return b""
        if vocabulary.spelling == "sentencepiece":
            return sentencepiece_bytes(spelled)
        # Added tokens stand in the text as they are, even where they look like the byte alphabet.
        return spelled.encode("utf-8") if spelled in vocabulary.added else byte_level_bytes(spelled)

    def _literal_bytes(self, token_id: int) -> bytes:
        if 0 <= token_id < self.vocab_size and self.is_control(token_id):
            return (self.vocabulary.spelled(token_id) or "").encode("utf-8")
        return self.token_bytes(token_id)


def check_text(text: str, param: str) -> None:
    """Refuse text with half a surrogate pair, which has no UTF-8.

    Raises:
        RequestError: names the field, the code unit and its place.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{param} holds half a surrogate pair (U+{ord(text[error.start]):04X} at character {error.start}), which "
            "is no valid Unicode text; send whole characters",
            param=param,
            code="invalid_unicode",
        ) from None


def _encode(backend: Backend, text: str) -> list[int]:
    # The batch call is the one that releases the GIL.
    ids: list[int] = backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
    return ids
