"""SVG and HTML as text: elements, escaped, with numbers as short as a drawing needs."""

from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr


def element(name: str, attributes: dict[str, object], *children: str) -> str:
    """An element. Floats are written with one decimal; attributes that are None are left out.

    Args:
        children: elements and escaped text (`content`).
    """
    written = "".join(f" {key}={quoteattr(_value(value))}" for key, value in attributes.items() if value is not None)
    return f"<{name}{written}>{''.join(children)}</{name}>" if children else f"<{name}{written}/>"


def content(text: str) -> str:
    """Text as an element may hold it. What XML forbids, such as most control characters, becomes a question mark."""
    return escape(_allowed(text))


def path(points: Sequence[tuple[float, float]]) -> str:
    """The ``d`` of a path through points, in pixels."""
    return " ".join(f"{'L' if index else 'M'}{x:.1f} {y:.1f}" for index, (x, y) in enumerate(points))


def _value(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else _allowed(str(value))


def _allowed(text: str) -> str:
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)
