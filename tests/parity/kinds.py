"""The ways to compute that parity and law tests go through."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A way to compute: backend, activations, instruction set, KV type."""

    backend: str
    activations: str = "float"
    isa: str | None = None
    kv_dtype: str = "bf16"

    def __str__(self) -> str:
        return "-".join(part for part in (self.backend, self.activations, self.isa, self.kv_dtype) if part)


REFERENCE = [Kind("reference", kv_dtype="f32"), Kind("reference", kv_dtype="bf16")]
CPU = [
    Kind("cpu", activations, isa, kv_dtype)
    for isa in ("avx512bf16", "avx512", "avx2", "generic")
    for activations, kv_dtype in (("float", "f32"), ("float", "bf16"), ("int8", "bf16"))
]
KINDS = REFERENCE + CPU
REAL = [
    Kind("cpu", "float", "avx512", "f32"),
    Kind("cpu", "float", "avx512bf16"),
    Kind("cpu", "int8", "avx512bf16"),
    Kind("cpu", "int8", "avx2"),
]
"""Those that go through everything with the real model; small ones go through it with every kind."""
