"""Vocabularies from GGUF metadata (keys ``tokenizer.ggml.*``).

Two kinds are known: byte-level BPE (``gpt2``), whose pre-tokenizer `tokenizer.ggml.pre` names, and SentencePiece BPE
with byte fallback (``llama``), whose merges follow from the scores. All others are refused by name.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from tokenizers import AddedToken, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from freehold.errors import ModelFileError, UnsupportedModelError, shown
from freehold.text.end_of_turn import end_ids
from freehold.text.pretokenizers import PRETOKENIZER_KINDS, PretokenizerKind
from freehold.text.sentencepiece_merges import merges_from_scores
from freehold.text.spelling import BYTE_TOKENS, SPACE_MARK
from freehold.text.vocabulary import LiteralToken, Vocabulary

_PREFIX = "tokenizer.ggml."
_SPECIAL_NAMES = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
    "sep_token": "seperator_token_id",  # spelled so in the format
    "cls_token": "cls_token_id",
    "mask_token": "mask_token_id",
}


class TokenKind(IntEnum):
    """Values of ``tokenizer.ggml.token_type``."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_KINDS = frozenset(TokenKind)


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The token list sorted by kind. `mergeable` maps ordinary text to ids."""

    spelled: list[str]
    mergeable: dict[str, int]
    controls: dict[str, LiteralToken]
    added: dict[str, LiteralToken]
    byte_ids: dict[int, bytes]
    silent_ids: frozenset[int]

    def text_ids(self) -> dict[str, int]:
        """What the BPE model knows: no controls, so that no merge leads to one."""
        return self.mergeable | {text: token.token_id for text, token in self.added.items()}


def vocabulary_from_gguf(metadata: Mapping[str, Any], *, templates: Iterable[str] = ()) -> Vocabulary:
    """Build the vocabulary that GGUF metadata describes.

    Arguments:
        metadata: all keys of the file; lists of strings as lists, other arrays as numpy arrays or lists.
        templates: sources of the model's chat templates, which tell end-of-turn tokens (`end_of_turn`).

    Raises:
        UnsupportedModelError: a tokenizer or pre-tokenizer that Freehold doesn't know; the message names it.
        ModelFileError: a key is missing, of the wrong type or length, or an id is out of range.
    """
    model = metadata.get(_PREFIX + "model")
    if model is None:
        raise ModelFileError(f"the file has no {_PREFIX}model, so it carries no tokenizer; convert the model again")
    builders: dict[str, Callable[[Mapping[str, Any], tuple[str, ...]], Vocabulary]] = {
        "gpt2": _byte_level,
        "llama": _sentencepiece,
    }
    if not isinstance(model, str) or model not in builders:
        raise UnsupportedModelError(
            f"{_PREFIX}model is {shown(model)}; Freehold reads {' and '.join(map(repr, builders))} tokenizers"
        )
    return builders[model](metadata, tuple(templates))


def _byte_level(metadata: Mapping[str, Any], templates: tuple[str, ...]) -> Vocabulary:
    kind = _pretokenizer_kind(metadata)
    tokens = _read_tokens(metadata)
    merges = [_split_merge(merge) for merge in _strings(metadata, "merges")]
    vocab = tokens.text_ids()
    try:
        model = BPE(vocab, merges, ignore_merges=kind.ignores_merges)
    except Exception as error:  # `tokenizers` raises bare Exception: a merge names a token that isn't there
        known = [(left, right) for left, right in merges if _is_known(left, right, vocab)]
        if len(known) == len(merges):
            raise ModelFileError(f"{_PREFIX}merges can't be used: {error}") from None
        model = BPE(vocab, known, ignore_merges=kind.ignores_merges)
    pretokenizer = kind.build()
    middle = _pipeline(model, tokens.added, kind.normalizer(), pretokenizer)
    return _assemble(
        metadata,
        tokens,
        templates,
        spelling="byte_level",
        start=middle,
        middle=middle,
        bare=_pipeline(model, {}, kind.normalizer(), pretokenizer) if tokens.added else middle,
        add_bos=_flag(metadata, "add_bos_token", default=kind.adds_bos),
    )


def _sentencepiece(metadata: Mapping[str, Any], templates: tuple[str, ...]) -> Vocabulary:
    tokens = _read_tokens(metadata)
    scores = _numbers(metadata, "scores", len(tokens.spelled))
    normal = {text: token_id for text, token_id in tokens.mergeable.items() if token_id not in tokens.byte_ids}
    merges = merges_from_scores(normal, scores)
    model = BPE(tokens.text_ids(), merges, byte_fallback=True, fuse_unk=True)
    normalizer = normalizers.Replace(" ", SPACE_MARK)
    middle = _pipeline(model, tokens.added, normalizer, None)
    add_prefix = _flag(metadata, "add_space_prefix", default=True)
    return _assemble(
        metadata,
        tokens,
        templates,
        spelling="sentencepiece",
        start=middle,
        middle=middle,
        bare=_pipeline(model, {}, normalizer, None) if tokens.added else middle,
        start_prefix=" " if add_prefix else "",
        strips_space=add_prefix,
        add_bos=_flag(metadata, "add_bos_token", default=True),
    )


def _assemble(metadata: Mapping[str, Any], tokens: _Tokens, templates: tuple[str, ...], **pipelines: Any) -> Vocabulary:
    size = len(tokens.spelled)
    ids = {name: _token_id(metadata, key, size) for name, key in _SPECIAL_NAMES.items()}
    declared = [ids["eos_token"], _token_id(metadata, "eot_token_id", size), _token_id(metadata, "eom_token_id", size)]
    return Vocabulary(
        size=size,
        spelled=lambda token_id: tokens.spelled[token_id],
        controls=tokens.controls,
        added=tokens.added,
        silent_ids=tokens.silent_ids,
        byte_ids=tokens.byte_ids,
        bos_id=ids["bos_token"],
        unknown_id=ids["unk_token"],
        eos_ids=end_ids(declared, tokens.controls, templates),
        special_tokens={name: tokens.spelled[token_id] for name, token_id in ids.items() if token_id is not None},
        **pipelines,
    )


def _pipeline(
    model: BPE,
    added: Mapping[str, LiteralToken],
    normalizer: normalizers.Normalizer | None,
    pretokenizer: pre_tokenizers.PreTokenizer | None,
) -> Backend:
    backend = Backend(model)
    if normalizer is not None:
        backend.normalizer = normalizer
    if pretokenizer is not None:
        backend.pre_tokenizer = pretokenizer
    if added:
        backend.add_tokens([AddedToken(text, normalized=False, special=False) for text in added])
    return backend


def _pretokenizer_kind(metadata: Mapping[str, Any]) -> PretokenizerKind:
    name = metadata.get(_PREFIX + "pre")
    if name is None:
        raise UnsupportedModelError(
            f"the file has no {_PREFIX}pre, so how its tokenizer cuts text into words is unknown; "
            "convert the model again with a current converter"
        )
    if not isinstance(name, str) or name not in PRETOKENIZER_KINDS:
        raise UnsupportedModelError(
            f"{_PREFIX}pre is {shown(name)}; Freehold knows {', '.join(sorted(PRETOKENIZER_KINDS))}"
        )
    return PRETOKENIZER_KINDS[name]


def _read_tokens(metadata: Mapping[str, Any]) -> _Tokens:
    spelled = _strings(metadata, "tokens")
    if not spelled:
        raise ModelFileError(f"{_PREFIX}tokens is empty")
    mergeable = {text: token_id for token_id, text in enumerate(spelled)}
    controls: dict[str, LiteralToken] = {}
    added: dict[str, LiteralToken] = {}
    byte_ids: dict[int, bytes] = {}
    silent: set[int] = set()
    duplicates = len(spelled) - len(mergeable)
    for token_id, value in _special_kinds(metadata, len(spelled)):
        text = spelled[token_id]
        if value == TokenKind.BYTE:
            if text not in BYTE_TOKENS:
                raise ModelFileError(f"token {token_id} is {text!r} but marked as a byte; expected <0x00> to <0xFF>")
            byte_ids[token_id] = BYTE_TOKENS[text]
            continue
        if mergeable.get(text) == token_id:
            del mergeable[text]
        else:
            duplicates -= 1
        if value == TokenKind.USER_DEFINED and text:
            added[text] = LiteralToken(token_id)
            continue
        silent.add(token_id)
        if value in (TokenKind.CONTROL, TokenKind.UNKNOWN) and text:
            controls[text] = LiteralToken(token_id)
    if duplicates > 0:
        raise ModelFileError(f"{_PREFIX}tokens lists {_first_duplicate(spelled)!r} twice")
    return _Tokens(spelled, mergeable, controls, added, byte_ids, frozenset(silent))


def _special_kinds(metadata: Mapping[str, Any], size: int) -> list[tuple[int, int]]:
    """(id, kind) of all tokens that aren't normal. A file without kinds has normal tokens only.

    Some converters mark the token that ends a turn as user-defined, so that any text could write it; what the file
    names as a beginning or an end is a control token.
    """
    if _PREFIX + "token_type" not in metadata:
        return []
    borders = {_token_id(metadata, f"{name}_token_id", size) for name in ("bos", "eos", "eot", "eom")}
    special = []
    for token_id, number in enumerate(_numbers(metadata, "token_type", size)):
        if number == TokenKind.NORMAL:
            continue
        if number not in _KINDS:
            raise ModelFileError(f"{_PREFIX}token_type of token {token_id} is {shown(number)}; 1 to 6 are known")
        value = int(number)
        is_border = value == TokenKind.USER_DEFINED and token_id in borders
        special.append((token_id, TokenKind.CONTROL if is_border else value))
    return special


def _first_duplicate(spelled: Sequence[str]) -> str:
    seen: set[str] = set()
    for text in spelled:
        if text in seen:
            return text
        seen.add(text)
    raise AssertionError("no duplicate")


def _strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    value = metadata.get(_PREFIX + key)
    if not isinstance(value, list) or (value and not isinstance(value[0], str)):
        found = "missing" if value is None else f"a {type(value).__name__}"
        raise ModelFileError(f"{_PREFIX}{key} is {found}; a list of strings is needed")
    return value


def _numbers(metadata: Mapping[str, Any], key: str, size: int) -> list[float]:
    value = metadata.get(_PREFIX + key)
    if value is None or isinstance(value, str | bytes) or not hasattr(value, "__len__"):
        raise ModelFileError(f"{_PREFIX}{key} is {'missing' if value is None else shown(value)}; an array is needed")
    numbers: list[float] = value.tolist() if hasattr(value, "tolist") else list(value)
    if len(numbers) != size:
        raise ModelFileError(f"{_PREFIX}{key} has {len(numbers)} entries for {size} tokens")
    if numbers and not isinstance(numbers[0], int | float):
        raise ModelFileError(f"{_PREFIX}{key} must hold numbers; it holds {type(numbers[0]).__name__}")
    return numbers


def _flag(metadata: Mapping[str, Any], key: str, *, default: bool) -> bool:
    value = metadata.get(_PREFIX + key, default)
    if not isinstance(value, bool):
        raise ModelFileError(f"{_PREFIX}{key} is {shown(value)}; true or false is needed")
    return value


def _token_id(metadata: Mapping[str, Any], key: str, size: int) -> int | None:
    value = metadata.get(_PREFIX + key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < size:
        raise ModelFileError(f"{_PREFIX}{key} is {shown(value)}; the vocabulary has ids 0 to {size - 1}")
    return value


def _split_merge(merge: str) -> tuple[str, str]:
    # A space inside a token is spelled otherwise, but a merge may begin with the token " ".
    cut = merge.find(" ", 1)
    if cut < 0:
        raise ModelFileError(f"{_PREFIX}merges has {merge!r}; two tokens with a space between are needed")
    return merge[:cut], merge[cut + 1 :]


def _is_known(left: str, right: str, vocab: Mapping[str, int]) -> bool:
    return left in vocab and right in vocab and left + right in vocab
