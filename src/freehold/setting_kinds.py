"""Kinds of values that settings take: how their text is read, and how sizes are written."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DECIMAL_UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SPANS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_TEST_BACKENDS = {"scripted"}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value.

    Attributes:
        parse: makes the value from its text; raises ValueError that says what is accepted.
        metavar: stands for a value in ``--help``.
        is_list: a tuple of such values: a flag given several times, a list in the file, or a text with commas.
        choices: the words that it may be; empty if any.
    """

    parse: Callable[[str], Any]
    metavar: str
    is_list: bool = False
    choices: tuple[str, ...] = ()


def parse_size(text: str) -> int:
    """Bytes from text such as ``512M``, ``2GiB`` (powers of 1024), ``2GB`` (powers of 1000) or a plain number."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([a-z]*)", text.strip().lower())
    unit = match and (_DECIMAL_UNITS.get(match[2]) or _UNITS.get(match[2].removesuffix("ib").removesuffix("b")))
    if not match or not unit:
        raise ValueError("a size such as 512M, 2GiB or a number of bytes")
    return int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit


def parse_span(text: str) -> float:
    """Seconds from text such as ``90s``, ``30m``, ``12h``, ``7d`` or ``2w``."""
    match = re.fullmatch(r"([0-9]{1,6})([smhdw])", text.strip())
    if not match or not int(match[1]):
        raise ValueError("a time such as 90s, 30m, 12h, 7d or 2w")
    return float(int(match[1]) * _SPANS_S[match[2]])


def format_span(seconds: float) -> str:
    """Whole seconds as `parse_span` reads them, in the largest unit of up to a day that they fill: ``7d``."""
    unit = next((name for name in "dhm" if seconds % _SPANS_S[name] == 0), "s")
    return f"{seconds / _SPANS_S[unit]:g}{unit}"


def size_from(low: int) -> Kind:
    """Sizes of so many bytes at least."""

    def parse(text: str) -> int:
        num_bytes = parse_size(text)
        if num_bytes < low:
            raise ValueError(f"a size of at least {format_size(low)}, such as 512M or 2GiB")
        return num_bytes

    return Kind(parse, "SIZE")


def format_size(num_bytes: int) -> str:
    """Bytes for people: ``512 MiB``."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if num_bytes >= unit:
            return f"{num_bytes / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{num_bytes} B"


def integer(low: int, high: int = 1 << 40, multiple_of: int = 1) -> Kind:
    """Whole numbers."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,15}", text) or not low <= int(text) <= high or int(text) % multiple_of:
            step = f", a multiple of {multiple_of}" if multiple_of > 1 else ""
            raise ValueError(f"a whole number from {low} to {high}{step}")
        return int(text)

    return Kind(parse, "N")


def number(low: float, high: float, metavar: str) -> Kind:
    """Numbers."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not low <= number <= high:
            raise ValueError(f"a number from {low:g} to {high:g}")
        return number

    return Kind(parse, metavar)


def choice(options: Iterable[str]) -> Kind:
    """One of some words. Those for tests are not shown."""
    names = tuple(options)
    shown = [name for name in names if name not in _TEST_BACKENDS]

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(f"one of {', '.join(shown)}")
        return text

    return Kind(parse, "{" + ",".join(shown) + "}", choices=tuple(shown))


def switch(text: str) -> bool:
    """On or off."""
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def text(text: str) -> str:
    """Names."""
    if not text or not text.isprintable():
        raise ValueError("a name without control characters")
    return text


def secret(text: str) -> str:
    """What nobody may see."""
    if not re.fullmatch(r"[!-~]{8,200}", text):
        raise ValueError("8 to 200 visible ASCII characters")
    return text


def origin(text: str) -> str:
    """Where web pages come from."""
    if text != "*" and not re.fullmatch(r"https?://[^/\s@]+", text):
        raise ValueError("an origin such as https://example.org, without a path, or *")
    return text


def url(text: str) -> str:
    """Where a web server answers. It shows in logs, so that it may hold no secret."""
    if not re.fullmatch(r"https?://[^/\s@?#]+(/[^\s?#]*)?", text):
        raise ValueError("a URL such as http://127.0.0.1:4318, without user and query")
    return text


def pair(text: str) -> str:
    """A name and its value."""
    name, sign, value = text.partition("=")
    if not (re.fullmatch(r"[!-~]+", name.strip()) and sign and value.isprintable()):
        raise ValueError("a name, =, and its value")
    return text


def folder(text: str) -> Path:
    """A folder, whether it is there or not."""
    path = Path(text).expanduser()
    if path.exists() and not path.is_dir():
        raise ValueError("a folder, and there is a file of that name")
    return path


def file(text: str) -> Path:
    """A file that is there."""
    path = Path(text).expanduser()
    if not path.exists():
        raise ValueError("a file, and there is none of that name")
    if not path.is_file():  # some files are read more than once, which a pipe can't be
        raise ValueError("a regular file, and that is a folder, a pipe or a device")
    return path
