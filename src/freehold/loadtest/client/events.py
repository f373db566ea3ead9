"""Server-sent events (WHATWG HTML, 9.2), however the bytes are cut."""

MAX_EVENT_BYTES = 64 << 20
_BOM = b"\xef\xbb\xbf"


class EventTooLongError(ValueError):
    """An event doesn't end."""


class EventReader:
    """Takes bytes as they come and gives the data of each event once that event is whole.

    Only the field ``data`` is of interest; comments, names and ids of events are passed over. Lines may end in CR, LF
    or both, in one stream in different ways.
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []  # parts of a line that hasn't ended
        self._data: list[bytes] = []  # data lines of an event that hasn't ended
        self._held_bytes = 0
        self._skips_newline = False
        self._is_first_line = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Data of the events that end within these bytes.

        Raises:
            EventTooLongError: an event of more than `MAX_EVENT_BYTES`.
        """
        if self._skips_newline and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._skips_newline = False
        if b"\r" in chunk:
            self._skips_newline = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *others = chunk.split(b"\n")
        self._line.append(first)
        self._held_bytes += len(first)
        if self._held_bytes > MAX_EVENT_BYTES:
            raise EventTooLongError(f"an event of more than {MAX_EVENT_BYTES} bytes")
        if not others:
            return []
        line, self._line = b"".join(self._line), [others.pop()]
        ended = [data for each in (line, *others) if (data := self._take(each)) is not None]
        self._held_bytes = len(self._line[0]) + sum(map(len, self._data))
        return ended

    def finish(self) -> list[bytes]:
        """Data of a last event whose end was the end of the stream: not in the standard, but servers do it."""
        return self.feed(b"\n\n")

    def _take(self, line: bytes) -> bytes | None:
        """The data of an event that this line ends."""
        if self._is_first_line:
            line = line.removeprefix(_BOM)
            self._is_first_line = False
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
        elif line == b"data":
            self._data.append(b"")
        elif not line and self._data:
            data = b"\n".join(self._data)
            self._data.clear()
            return data
        return None
