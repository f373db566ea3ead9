"""Freehold: own your LLM inference."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from freehold.llm import LLM as LLM
    from freehold.llm import Completion as Completion
    from freehold.text.params import SamplingParams as SamplingParams

__version__ = "0.1.0"
__all__ = ["LLM", "Completion", "SamplingParams", "__version__"]

_LAZY = {"LLM": "freehold.llm", "Completion": "freehold.llm", "SamplingParams": "freehold.text.params"}
"""Imported when first asked for: ``import freehold`` stays instant."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return value
