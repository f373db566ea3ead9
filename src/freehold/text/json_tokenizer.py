"""Vocabularies from Hugging Face's ``tokenizer.json``, with what ``tokenizer_config.json`` adds.

The pipeline (normalizer, pre-tokenizer, merges) is taken as the file has it. Only BPE with a byte-level or a
SentencePiece decoder is accepted; others are refused by name.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, pre_tokenizers
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from freehold.errors import ModelFileError, UnsupportedModelError, shown
from freehold.text.end_of_turn import end_ids
from freehold.text.spelling import BYTE_TOKENS, Spelling
from freehold.text.vocabulary import LiteralToken, Vocabulary

_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def vocabulary_from_json(
    path: Path,
    *,
    tokenizer_config: Mapping[str, Any],
    generation_config: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    templates: Iterable[str] = (),
) -> Vocabulary:
    """Build the vocabulary of a Hugging Face checkpoint.

    Arguments:
        path: the ``tokenizer.json``.
        tokenizer_config, generation_config, config: the parsed files of these names.
        templates: sources of the model's chat templates.

    Raises:
        UnsupportedModelError: a model, decoder or added token that Freehold doesn't know.
        ModelFileError: the file is malformed, or a file names a token that doesn't exist.
    """
    try:
        start = Backend.from_file(str(path))
    except Exception as error:  # `tokenizers` raises bare Exception
        raise ModelFileError(f"{path} is no tokenizer.json that can be read: {error}") from None
    model = start.model
    if not isinstance(model, BPE):
        raise UnsupportedModelError(f"model.type in {path} is {type(model).__name__!r}; Freehold reads 'BPE'")
    start.no_truncation()
    start.no_padding()
    start.encode_special_tokens = True  # literals of control tokens are ordinary text
    spelling, strips_space = _spelling(start, path)
    added_tokens = start.get_added_tokens_decoder()
    controls, added = _sort_added(added_tokens, path)
    special = _special_tokens(tokenizer_config)
    ids = {name: _id_of(start, literal, name) for name, literal in special.items()}
    for name, literal in special.items():
        # Named here, a token is special, whatever tokenizer.json says of it: so Hugging Face has it, too.
        controls.setdefault(literal, added.pop(literal, LiteralToken(ids[name])))
    size = max(start.get_vocab_size(with_added_tokens=True), max(added_tokens, default=-1) + 1)
    return Vocabulary(
        size=size,
        spelling=spelling,
        spelled=start.id_to_token,
        controls=controls,
        added=added,
        silent_ids=frozenset(control.token_id for control in controls.values()),
        byte_ids=_byte_ids(start) if spelling == "sentencepiece" else {},
        start=start,
        middle=_without_prefix(start, added_tokens, path),
        bare=_without_prefix(start, {}, path),
        strips_space=strips_space,
        bos_id=ids.get("bos_token"),
        unknown_id=ids.get("unk_token"),
        add_bos=_adds_bos(start, tokenizer_config, ids.get("bos_token")),
        eos_ids=end_ids(
            [ids.get("eos_token"), *_declared_ends(generation_config, config, size)], controls, tuple(templates)
        ),
        special_tokens=special,
    )


def _spelling(backend: Backend, path: Path) -> tuple[Spelling, bool]:
    """How the decoder spells bytes, and whether it strips a leading space."""
    steps = _state(backend.decoder)
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return "byte_level", False
    if "ByteFallback" in kinds and set(kinds) <= {"Replace", "ByteFallback", "Fuse", "Strip"}:
        return "sentencepiece", "Strip" in kinds
    raise UnsupportedModelError(
        f"decoder in {path} is {kinds or None!r}; Freehold reads byte-level and SentencePiece (byte fallback) decoders"
    )


def _state(component: Any) -> list[dict[str, Any]]:
    """Steps of a decoder or pre-tokenizer as its JSON has them."""
    if component is None:
        return []
    state: dict[str, Any] = json.loads(component.__getstate__())
    steps: list[dict[str, Any]] = state.get("decoders") or state.get("pretokenizers") or [state]
    return steps


def _without_prefix(start: Backend, added_tokens: Mapping[int, AddedToken], path: Path) -> Backend:
    """The same pipeline for a piece inside a text: no dummy prefix if only the very beginning has one."""
    middle = Backend(start.model)
    if start.normalizer is not None:
        middle.normalizer = start.normalizer
    if start.pre_tokenizer is not None:
        middle.pre_tokenizer = start.pre_tokenizer
        steps = _state(start.pre_tokenizer)
        if any(step["type"] == "Metaspace" and step.get("prepend_scheme") == "first" for step in steps):
            if len(steps) > 1:
                raise UnsupportedModelError(f"pre_tokenizer in {path} combines Metaspace with other steps")
            middle.pre_tokenizer = pre_tokenizers.Metaspace(
                replacement=steps[0]["replacement"], prepend_scheme="never", split=steps[0].get("split", True)
            )
    for token_id, token in sorted(added_tokens.items()):
        (middle.add_special_tokens if token.special else middle.add_tokens)([token])
        if middle.token_to_id(token.content) != token_id:
            raise ModelFileError(f"added_tokens in {path}: {token.content!r} can't have id {token_id}")
    middle.encode_special_tokens = True
    return middle


def _sort_added(
    added_tokens: Mapping[int, AddedToken], path: Path
) -> tuple[dict[str, LiteralToken], dict[str, LiteralToken]]:
    controls: dict[str, LiteralToken] = {}
    added: dict[str, LiteralToken] = {}
    for token_id, token in added_tokens.items():
        if not token.content:
            raise ModelFileError(f"added_tokens in {path}: token {token_id} is empty")
        literal = LiteralToken(token_id, takes_left=token.lstrip, takes_right=token.rstrip)
        if not token.special:
            added[token.content] = literal
        elif token.single_word:
            raise UnsupportedModelError(f"added_tokens in {path}: {token.content!r} is special and single_word")
        else:
            controls[token.content] = literal
    return controls, added


def _byte_ids(backend: Backend) -> dict[int, bytes]:
    ids = ((backend.token_to_id(spelled), raw) for spelled, raw in BYTE_TOKENS.items())
    return {token_id: raw for token_id, raw in ids if token_id is not None}


def _special_tokens(tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    special = {}
    for name in _SPECIAL_NAMES:
        value = tokenizer_config.get(name)
        if isinstance(value, Mapping):
            value = value.get("content")
        if value is None:
            continue
        if not isinstance(value, str):
            raise ModelFileError(f"{name} in tokenizer_config.json is {shown(value)}; a string is needed")
        special[name] = value
    return special


def _id_of(backend: Backend, literal: str, name: str) -> int:
    token_id = backend.token_to_id(literal)
    if token_id is None:
        raise ModelFileError(f"{name} in tokenizer_config.json is {shown(literal)}, which tokenizer.json doesn't have")
    return int(token_id)


def _adds_bos(backend: Backend, tokenizer_config: Mapping[str, Any], bos_id: int | None) -> bool:
    declared = tokenizer_config.get("add_bos_token")
    if isinstance(declared, bool):
        return declared
    # Else the post-processor decides, as it does in Hugging Face's tokenizers.
    return bos_id is not None and backend.encode("", add_special_tokens=True).ids[:1] == [bos_id]


def _declared_ends(
    generation_config: Mapping[str, Any] | None, config: Mapping[str, Any] | None, size: int
) -> list[int]:
    for name, settings in (("generation_config.json", generation_config), ("config.json", config)):
        if settings is None:
            continue
        value = settings.get("eos_token_id")
        ids = [] if value is None else value if isinstance(value, list) else [value]
        for token_id in ids:
            if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id < size:
                raise ModelFileError(
                    f"eos_token_id in {name} is {shown(value)}; the vocabulary has ids 0 to {size - 1}"
                )
        return ids
    return []
