"""What the compiler, its worker and the engine's matchers say to each other, as msgpack."""

from dataclasses import dataclass

import msgspec

from freehold.protocol import TokenTexts


@dataclass(frozen=True, slots=True)
class CompileLimits:
    """What checking and compiling one constraint may take.

    Attributes:
        cpu_s: processor seconds, kept by the kernel inside the process.
        wall_s: seconds until the process is ended from outside. Long, because a loaded machine is no one's fault.
        memory_bytes: address space beyond what the process has after starting.
    """

    cpu_s: float = 0.5
    wall_s: float = 10.0
    memory_bytes: int = 128 << 20


class Setup(msgspec.Struct, frozen=True, array_like=True):
    """The first frame to the worker."""

    tokens: TokenTexts
    limits: CompileLimits


class Verdict(msgspec.Struct, frozen=True, array_like=True):
    """What became of a constraint: its source, or why it is refused.

    Attributes:
        param: the field that is at fault, if it isn't the constraint's own.
        place: within that field, as in ``.properties.a``.
    """

    source: bytes = b""
    message: str = ""
    param: str = ""
    place: str = ""
    code: str = ""


class Source(msgspec.Struct, frozen=True, array_like=True):
    """What `freehold.protocol.Grammar.source` holds.

    Attributes:
        text: in llguidance's variant of Lark's syntax.
        is_ambiguous: many ways may lead to the same text, so that following it can take long.
        head: another text, of what begins as the grammar's texts do and goes on in any way; empty: none.
    """

    text: str
    is_ambiguous: bool = False
    head: str = ""
