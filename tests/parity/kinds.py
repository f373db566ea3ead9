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


REFERENCE = [Kind("reference", kv_dtype=kv_dtype) for kv_dtype in ("f32", "bf16", "int8")]
ISAS = ("avx512bf16", "avx512", "avx2", "generic")
CPU = [
    Kind("cpu", activations, isa, kv_dtype)
    for isa in ISAS
    for activations, kv_dtype in (("float", "f32"), ("float", "bf16"), ("int8", "bf16"))
]
INT8_KV = [Kind("cpu", "int8", isa, "int8") for isa in ISAS]
KINDS = REFERENCE + CPU + INT8_KV
REAL = [
    Kind("cpu", "float", "avx512", "f32"),
    Kind("cpu", "float", "avx512bf16"),
    Kind("cpu", "int8", "avx512bf16"),
    Kind("cpu", "int8", "avx2"),
    Kind("cpu", "int8", "avx512bf16", "int8"),
]
"""Those that go through everything with the real model; small ones go through it with every kind."""
