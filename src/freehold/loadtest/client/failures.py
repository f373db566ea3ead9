"""Ways in which a request fails, under names that results keep."""

from typing import Literal

from freehold.errors import printable

FailureCode = Literal[
    "connect", "dropped", "timeout", "http_error", "error_event", "malformed", "incomplete", "refused_turn"
]
"""No connection; one that broke; no end in time; a status other than 200; an error within the stream; bytes that are no
HTTP, no events or no JSON; a stream that ended without saying so; a turn that the endpoint can't take."""

_SHOWN = 300


class FailedRequestError(Exception):
    """A request brought no whole answer.

    Attributes:
        code: its kind.
        status: of the HTTP answer, if there was one.
    """

    def __init__(self, code: FailureCode, text: str, *, status: int | None = None) -> None:
        super().__init__(printable(" ".join(text[:_SHOWN].split())))  # servers may have written it
        self.code = code
        self.status = status

    @property
    def name(self) -> str:
        """What it is counted under: its code, with the status if that is what tells."""
        return f"http_{self.status}" if self.code == "http_error" else self.code
