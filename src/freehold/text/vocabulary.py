"""A vocabulary as data: what `Tokenizer` needs to know, from whichever file it came."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tokenizers import Tokenizer as Backend

from freehold.text.spelling import Spelling


@dataclass(frozen=True, slots=True)
class LiteralToken:
    """A token that stands for one literal, found before words are cut.

    Attributes:
        takes_left, takes_right: white space beside the literal belongs to it (Hugging Face's ``lstrip``, ``rstrip``).
    """

    token_id: int
    takes_left: bool = False
    takes_right: bool = False


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Tokens, their kinds, and the `tokenizers` pipelines over one shared model.

    Attributes:
        size: number of ids; valid ids are 0 to ``size - 1``.
        spelled: the token's text as the file spells it, None for a gap.
        controls: by literal. Only templates and text that is trusted write them.
        added: literals that are matched whole in any text, such as ``<think>`` in Qwen's vocabularies.
        silent_ids: ids without text: controls and unused tokens.
        byte_ids: byte-fallback tokens and the byte each stands for.
        start, middle, bare: encode the beginning of a text, a piece inside it, and a piece in which not even
            ``added`` literals are matched. None of them matches controls.
        start_prefix: written before a text that begins without an added token (SentencePiece's dummy prefix).
        strips_space: decoding a text from its beginning drops one leading space (the dummy prefix again).
        special_tokens: names that templates know, such as ``bos_token``, with their literals.
    """

    size: int
    spelling: Spelling
    spelled: Callable[[int], str | None]
    controls: Mapping[str, LiteralToken]
    added: Mapping[str, LiteralToken]
    silent_ids: frozenset[int]
    byte_ids: Mapping[int, bytes] = field(default_factory=dict)
    start: Backend
    middle: Backend
    bare: Backend
    start_prefix: str = ""
    strips_space: bool = False
    bos_id: int | None = None
    unknown_id: int | None = None
    add_bos: bool = False
    eos_ids: frozenset[int] = frozenset()
    special_tokens: Mapping[str, str] = field(default_factory=dict)
