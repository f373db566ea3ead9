"""The oracle: numpy, float32, slow and obvious. Every other backend is measured against it."""

from freehold.backends.reference.backend import ReferenceBackend, open_reference

__all__ = ["ReferenceBackend", "open_reference"]
