"""What differs between the engine that was recorded and the one that repeats, and which of it explains other tokens."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from freehold.observe.record.format import Header
from freehold.protocol import Identity

What = Literal["model", "activations", "kv", "isa", "weights", "version", "tokenizer"]

_NAMES: dict[What, str] = {
    "model": "other model hash",
    "activations": "other numeric format of activations",
    "kv": "other numeric format of the KV cache",
    "isa": "other instruction set",
    "weights": "other numeric format of weights",
    "version": "other version of Freehold",
    "tokenizer": "other tokenizer",
}
"""In the order in which they are suspected: whatever hides behind another model hash is looked at first, and what
weights are packed into follows from activations and instruction set."""

NONDETERMINISM = "real nondeterminism: model, numeric format, instruction set and version are the same"


class Change(msgspec.Struct, frozen=True):
    """One thing that isn't as it was."""

    what: What
    recorded: str
    now: str

    def __str__(self) -> str:
        short = 12 if self.what in {"model", "tokenizer"} else 200
        return f"{_NAMES[self.what]} (was {self.recorded[:short]}, is {self.now[:short]})"


def changes(header: Header, identity: Identity, tokenizer: str) -> list[Change]:
    """What isn't as it was when a run was recorded, the likeliest cause of other tokens first."""
    pairs: list[tuple[What, str, str]] = [
        ("model", header.info.identity.model, identity.model),
        ("activations", header.info.identity.activations, identity.activations),
        ("kv", header.info.identity.kv, identity.kv),
        ("isa", header.info.identity.isa, identity.isa),
        ("weights", header.info.identity.weights, identity.weights),
        ("version", header.info.identity.version, identity.version),
        ("tokenizer", header.tokenizer, tokenizer),
    ]
    return [Change(what, recorded, now) for what, recorded, now in pairs if recorded != now]


def likely_cause(found: Sequence[Change], *, has_grammar: bool) -> str:
    """Why an answer differs, in words.

    Args:
        has_grammar: the engine was told what tokens write. Without one, ids go in and come out, and the tokenizer
            changes nothing.
    """
    suspects = [change for change in found if change.what != "tokenizer" or has_grammar]
    return "; ".join(map(str, suspects)) if suspects else NONDETERMINISM
