"""Strict, typed reads of a model's configuration.

Every read says whether the key may be absent. `Keys.finish` refuses a configuration with keys that nobody read: one of
them could change what the model computes.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from freehold.errors import ModelFileError, UnsupportedModelError, shown

LARGEST_SIZE = 2**31 - 1


class Keys:
    """One level of a configuration, and which of its keys are still unread. A null counts as absent.

    Attributes:
        source: what messages call this level, such as ``config.json`` or ``config.json: rope_scaling``.
    """

    def __init__(self, values: Mapping[str, Any], *, source: str) -> None:
        self.source = source
        self._values = values
        self._unread = set(values)

    def has(self, key: str) -> bool:
        """Whether the key is there with a value. Doesn't count as reading it, unless its value is null."""
        if self._values.get(key) is not None:
            return True
        self._unread.discard(key)
        return False

    def mentions(self, key: str) -> bool:
        """Whether the key is there, be it null. Doesn't count as reading it."""
        return key in self._values

    def _required(self, key: str) -> Any:
        if not self.has(key):
            raise ModelFileError(f"{self.source}: the key '{key}' is missing; the file is incomplete")
        self._unread.discard(key)
        return self._values[key]

    def _wrong(self, key: str, wanted: str) -> ModelFileError:
        return ModelFileError(f"{self.source}: '{key}' is {shown(self._values[key])}, expected {wanted}")

    def size(self, key: str, *, minimum: int = 1, maximum: int = LARGEST_SIZE) -> int:
        """A whole number within bounds."""
        value = self._required(key)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise self._wrong(key, f"a whole number from {minimum} to {maximum}")
        return value

    def size_or(self, key: str, default: int) -> int:
        """As `size`, or the default if absent."""
        return self.size(key) if self.has(key) else default

    def number(self, key: str) -> float:
        """A positive, finite number."""
        value = self._required(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
            raise self._wrong(key, "a positive number")
        return float(value)

    def number_or(self, key: str, default: float) -> float:
        """As `number`, or the default if absent."""
        return self.number(key) if self.has(key) else default

    def flag_or(self, key: str, default: bool) -> bool:
        """True or false, or the default if absent."""
        if not self.has(key):
            return default
        value = self._required(key)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def text(self, key: str) -> str:
        """A string."""
        value = self._required(key)
        if not isinstance(value, str):
            raise self._wrong(key, "a string")
        return value

    def texts(self, key: str) -> Sequence[str]:
        """A list of strings."""
        value = self._required(key)
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise self._wrong(key, "a list of strings")
        return value

    def section(self, key: str) -> "Keys":
        """A nested level, to be finished on its own."""
        value = self._required(key)
        if not isinstance(value, Mapping):
            raise self._wrong(key, "an object")
        return Keys(value, source=f"{self.source}: {key}")

    def require(self, key: str, supported: Any, *, why: str) -> None:
        """Refuse any value but the supported one; absent is fine."""
        if not self.has(key):
            return
        value = self._required(key)
        # An array compares element by element: it is never the supported value.
        if not isinstance(value, str | int | float) or value != supported:
            raise UnsupportedModelError(f"{self.source}: '{key}' = {shown(value)} is not supported ({why})")

    def ignore(self, keys: Iterable[str]) -> None:
        """Mark keys as known not to affect what the model computes."""
        self._unread.difference_update(keys)

    def finish(self) -> None:
        """Refuse keys that nobody read. Nulls carry no meaning and pass."""
        left = sorted(key for key in self._unread if self._values[key] is not None)
        if left:
            listed = ", ".join(f"'{key}' = {shown(self._values[key], most=60)}" for key in left[:5])
            more = f" and {len(left) - 5} more" if len(left) > 5 else ""
            raise UnsupportedModelError(
                f"{self.source}: unknown {'key' if len(left) == 1 else 'keys'} {listed}{more}; "
                "this may change what the model computes, so it isn't skipped"
            )
