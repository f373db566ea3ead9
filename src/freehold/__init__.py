"""Freehold: own your LLM inference."""

from importlib import import_module

TYPE_CHECKING = False
"""For type checkers, to which it is true. That of `typing` would cost every command some milliseconds at its begin."""
if TYPE_CHECKING:
    from typing import Any

    from freehold.grammar.constraint import Choice as Choice
    from freehold.grammar.constraint import JsonObject as JsonObject
    from freehold.grammar.constraint import JsonSchema as JsonSchema
    from freehold.grammar.constraint import Lark as Lark
    from freehold.grammar.constraint import Regex as Regex
    from freehold.llm import LLM as LLM
    from freehold.llm import Completion as Completion
    from freehold.text.params import SamplingParams as SamplingParams

__version__ = "0.1.0"
__all__ = [
    "LLM",
    "Choice",
    "Completion",
    "JsonObject",
    "JsonSchema",
    "Lark",
    "Regex",
    "SamplingParams",
    "__version__",
]

_LAZY = {
    "LLM": "freehold.llm",
    "Completion": "freehold.llm",
    "SamplingParams": "freehold.text.params",
    **dict.fromkeys(("Choice", "JsonObject", "JsonSchema", "Lark", "Regex"), "freehold.grammar.constraint"),
}
"""Imported when first asked for: ``import freehold`` stays instant."""


def __getattr__(name: str) -> "Any":
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return value
