"""Regular expressions of JSON Schema (ECMA-262) in the syntax of Rust's, which llguidance reads.

The two look alike and differ in what they mean: ``\\d`` and ``\\w`` are ASCII in one and Unicode in the other, and Rust
has set operations in classes (``[a&&b]``). So a pattern is taken apart and written anew.
"""

import re

_DIGIT = "0-9"
_WORD = "0-9A-Za-z_"
_SPACE = r"\t\n\x0B\x0C\r \x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}\x{FEFF}"
_SETS = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}
_ANY = r"[^\n\r\x{2028}\x{2029}]"
_QUANTIFIER = re.compile(r"\{(?P<low>[0-9]+)(?P<comma>,(?P<high>[0-9]*))?\}")
_PROPERTY = re.compile(r"[pP]\{(?P<name>[A-Za-z_=]{1,60})\}")
_HEX = re.compile(r"x(?P<two>[0-9A-Fa-f]{2})|u(?P<four>[0-9A-Fa-f]{4})|u\{(?P<code>[0-9A-Fa-f]{1,6})\}")

MAX_REPEATS = 100_000


class PatternError(ValueError):
    """A pattern is malformed, or has what can't be enforced."""


def to_rust(pattern: str) -> str:
    """The same expression in Rust's syntax.

    Raises:
        PatternError: says what it has that can't be translated.
    """
    return _Translation(pattern).run()


class _Translation:
    """One pattern, read from left to right."""

    def __init__(self, pattern: str) -> None:
        self._rest = pattern
        self._out: list[str] = []

    def run(self) -> str:
        while self._rest:
            self._out.append(self._next())
        return "".join(self._out)

    def _take(self, num_characters: int = 1) -> str:
        taken, self._rest = self._rest[:num_characters], self._rest[num_characters:]
        return taken

    def _next(self) -> str:
        if self._rest[0] == "{":
            return self._braces()
        character = self._take()
        match character:
            case "\\":
                written = self._escape()
            case "[":
                written = self._class()
            case "(":
                written = self._group()
            case ".":
                written = _ANY
            case "^" | "$" | "|" | ")" | "*" | "+" | "?":
                written = character
            case _:
                written = _literal(character)
        return written

    def _braces(self) -> str:
        """A counted repetition, or else a brace."""
        found = _QUANTIFIER.match(self._rest)
        if found is None:
            return _literal(self._take())
        for count in (found["low"], found["high"] or "0"):
            if len(count) > 9 or int(count) > MAX_REPEATS:
                raise PatternError(f"repeats {count[:20]} times; up to {MAX_REPEATS} are supported")
        return self._take(found.end())

    def _group(self) -> str:
        """The beginning of a group; it makes no difference whether it captures."""
        if not self._rest.startswith("?"):
            return "(?:"
        if self._rest.startswith("?:"):
            self._take(2)
            return "(?:"
        name = re.match(r"\?<[A-Za-z_$][A-Za-z0-9_$]*>", self._rest)
        if name:
            self._take(name.end())
            return "(?:"
        if re.match(r"\?<?[=!]", self._rest):
            raise PatternError("looks ahead or behind, which isn't supported")
        raise PatternError(f"has a group that begins with ({self._rest[:2]}, which isn't supported")

    def _escape(self) -> str:
        if not self._rest:
            raise PatternError("ends with a backslash")
        character = self._rest[0]
        if character.lower() in _SETS:
            self._take()
            return f"[{'' if character.islower() else '^'}{_SETS[character.lower()]}]"
        if found := _PROPERTY.match(self._rest):
            return f"\\{self._take(found.end())}"
        if character in "bB":
            raise PatternError("has a word boundary, which isn't supported")
        return _literal(self._character())

    def _character(self) -> str:
        """The character that an escape stands for."""
        if found := _HEX.match(self._rest):
            self._take(found.end())
            return self._code(int(found["two"] or found["four"] or found["code"], 16))
        character = self._take()
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "c" and re.match(r"[A-Za-z]", self._rest):
            return chr(ord(self._take()) % 32)
        if character == "0" and not re.match(r"[0-9]", self._rest):
            return "\0"
        if character.isdecimal() or character == "k":
            raise PatternError("refers back to a group, which isn't supported")
        if character.isalpha():
            raise PatternError(f"has the escape \\{character}, which isn't supported")
        return character

    def _code(self, code: int) -> str:
        """A code point, or the one that two halves of a surrogate pair make."""
        if 0xD800 <= code < 0xDC00 and (low := re.match(r"\\u([dD][c-fC-F][0-9A-Fa-f]{2})", self._rest)):
            self._take(low.end())
            code = 0x10000 + (code - 0xD800 << 10) + int(low[1], 16) - 0xDC00
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise PatternError(f"has the escape of U+{code:04X}, which is no character")
        return chr(code)

    def _class(self) -> str:
        is_negated = self._rest.startswith("^")
        if is_negated:
            self._take()
        members: list[str] = []
        while not self._rest.startswith("]"):
            if not self._rest:
                raise PatternError("has a [ without its ]")
            members.append(self._member())
        self._take()
        if members:
            return f"[{'^' if is_negated else ''}{''.join(members)}]"
        return "(?s:.)" if is_negated else "[^\\x{0}-\\x{10FFFF}]"

    def _member(self) -> str:
        """One member of a class: a character, a range or a set."""
        first = self._class_atom()
        if len(first) > 1 or not re.match(r"-[^\]]", self._rest):
            return first if len(first) > 1 else _literal(first)
        self._take()
        last = self._class_atom()
        if len(last) > 1:
            return f"{_literal(first)}{_literal('-')}{last}"
        if first > last:
            raise PatternError(f"has the range {first}-{last}, which is in the wrong order")
        return f"{_literal(first)}-{_literal(last)}"

    def _class_atom(self) -> str:
        """A single character, or a set as it stands in a class, which is longer."""
        character = self._take()
        if character != "\\":
            return character
        if not self._rest:
            raise PatternError("ends with a backslash")
        kind = self._rest[0]
        if kind.lower() in _SETS:
            self._take()
            return f"[{'' if kind.islower() else '^'}{_SETS[kind.lower()]}]"
        if found := _PROPERTY.match(self._rest):
            return f"\\{self._take(found.end())}"
        if kind == "b":
            self._take()
            return "\b"
        return self._character()


def _literal(character: str) -> str:
    """A character that means itself, in a class too."""
    if character.isascii() and (character.isalnum() or character == "_"):
        return character
    return f"\\x{{{ord(character):X}}}"
