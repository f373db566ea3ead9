"""Lines of styled text, and a terminal's screen to draw them on. Colours and the rest are ANSI's, which every terminal
of today knows."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

from freehold import resolve
from freehold.errors import printable

Style = Literal["plain", "bold", "dim", "green", "cyan", "yellow", "alarm"]

_CODES: dict[Style, str] = {
    "plain": "", "bold": "1", "dim": "2", "green": "32", "cyan": "36", "yellow": "33", "alarm": "1;31",
}  # fmt: skip
_COLORS = {"green", "cyan", "yellow", "alarm"}

# The other screen, without a cursor, where a line that is too long is cut; and back.
_TAKE, _GIVE_BACK = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


class Span(NamedTuple):
    """Text in one style."""

    text: str
    style: Style = "plain"


Line = Sequence[Span]


def text_of(line: Line, width: int) -> str:
    """A line without its styles, cut to a width."""
    return printable("".join(span.text for span in line))[:width].rstrip()


class Screen:
    """The terminal behind standard output."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty() and resolve.can_draw()
        self.is_plain = not sys.stdout.encoding.startswith("utf")
        self._is_colored = resolve.wants_colors()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines, as they are now."""
        return shutil.get_terminal_size()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Have it for oneself; afterwards all is as it was."""
        sys.stdout.write(_TAKE)
        try:
            yield
        finally:
            sys.stdout.write(_GIVE_BACK)
            sys.stdout.flush()

    def draw(self, lines: Sequence[Line]) -> None:
        """Show as many lines as fit, and nothing else."""
        width, height = self.size
        shown = (self._styled(line, width) + _REST_OF_LINE for line in lines[:height])
        sys.stdout.write(_HOME + "\r\n".join(shown) + _REST_OF_SCREEN)
        sys.stdout.flush()

    def _styled(self, line: Line, width: int) -> str:
        parts = []
        for text, style in line:
            shown = printable(text)[:width]
            width -= len(shown)
            code = "" if style in _COLORS and not self._is_colored else _CODES[style]
            parts.append(f"\x1b[{code}m{shown}\x1b[0m" if code and shown else shown)
        return "".join(parts)
