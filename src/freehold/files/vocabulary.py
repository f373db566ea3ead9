"""Picks tokenizer and chat template out of a model's files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from freehold.errors import ModelFileError
from freehold.files.model import ModelFiles
from freehold.text.gguf_tokenizer import vocabulary_from_gguf
from freehold.text.json_tokenizer import vocabulary_from_json
from freehold.text.template import ChatTemplate
from freehold.text.tokenizer import Tokenizer
from freehold.text.vocabulary import Vocabulary

_GGUF_TEMPLATE = "tokenizer.chat_template"


@dataclass(frozen=True, slots=True)
class TextAssets:
    """What turns text into ids and back.

    Attributes:
        template: None for a model without a chat template, such as a base model.
    """

    tokenizer: Tokenizer
    template: ChatTemplate | None


def load_text(files: ModelFiles) -> TextAssets:
    """Tokenizer and chat template of a model.

    Raises:
        UnsupportedModelError: a tokenizer that Freehold doesn't know.
        ModelFileError: no tokenizer, or a malformed one.
    """
    sources = _gguf_templates(files.metadata) if files.format == "gguf" else _hf_templates(files)
    vocabulary = _vocabulary(files, sources)
    template = None
    if sources:
        template = ChatTemplate(
            sources,
            special_tokens=vocabulary.special_tokens,
            controls=vocabulary.controls,
            added=vocabulary.added,
        )
    return TextAssets(Tokenizer(vocabulary), template)


def _vocabulary(files: ModelFiles, sources: Mapping[str, str]) -> Vocabulary:
    if files.format == "gguf":
        return vocabulary_from_gguf(files.metadata, templates=sources.values())
    if files.tokenizer_json is None:
        raise ModelFileError(f"{files.path} has no tokenizer.json; download it from where the model came from")
    return vocabulary_from_json(
        files.tokenizer_json,
        tokenizer_config=files.read_json("tokenizer_config.json") or {},
        generation_config=files.read_json("generation_config.json"),
        config=files.metadata,
        templates=sources.values(),
    )


def _gguf_templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    """``tokenizer.chat_template`` and its named companions ``tokenizer.chat_template.NAME``."""
    sources: dict[str, str] = {}
    for key, value in metadata.items():
        if key != _GGUF_TEMPLATE and not key.startswith(_GGUF_TEMPLATE + "."):
            continue
        if not isinstance(value, str):
            raise ModelFileError(f"{key} is a {type(value).__name__}; a string is needed")
        sources[key.removeprefix(_GGUF_TEMPLATE).removeprefix(".") or "default"] = value
    return sources if "default" in sources else {}


def _hf_templates(files: ModelFiles) -> dict[str, str]:
    """``chat_template.jinja``, else ``chat_template`` of ``tokenizer_config.json``: a string, or a list with names."""
    source = files.read_text("chat_template.jinja")
    if source is not None:
        return {"default": source}
    value = (files.read_json("chat_template.json") or {}).get("chat_template")
    if value is None:
        value = (files.read_json("tokenizer_config.json") or {}).get("chat_template")
    if value is None:
        return {}
    if isinstance(value, str):
        return {"default": value}
    try:
        sources = {str(entry["name"]): str(entry["template"]) for entry in value}
    except (TypeError, KeyError):
        raise ModelFileError("chat_template in tokenizer_config.json is neither text nor a list") from None
    return sources if "default" in sources else {}
