"""Models as data: from a configuration to a `ModelSpec` and rules for its tensors."""

from freehold.arch.load import Weights, read_model

__all__ = ["Weights", "read_model"]
