"""Read a recording: the requests and steps in a folder of segments, also while a server writes into it."""

import os
from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

from freehold.errors import RecordingError
from freehold.observe.record.format import (
    Begun,
    DamagedError,
    Ended,
    Header,
    Outcome,
    Stepped,
    bodies,
    check_preface,
    decode,
)

SUFFIX = ".fhr"


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One answer to one prompt, as the engine was asked for it.

    Attributes:
        ended: None if it still runs, or its server ended first.
    """

    header: Header
    begun: Begun
    ended: Ended | None

    @property
    def record_id(self) -> str:
        """Of the run and within it, such as ``1-17``; unique in its folder."""
        return f"{self.header.run}-{self.begun.number}"

    @property
    def began_unix_s(self) -> float:
        """When the engine was asked, in Unix seconds."""
        return self.header.unix_time(self.begun.at_s)

    @property
    def outcome(self) -> Outcome | None:
        """None if it hasn't ended."""
        return None if self.ended is None else self.ended.outcome

    @property
    def num_output_tokens(self) -> int:
        """Ids that the engine sampled."""
        return 0 if self.ended is None else self.ended.num_output_tokens


class _Place(NamedTuple):
    """Where a frame's body is: the position of its segment in the list, and bytes in it."""

    segment: int
    offset: int
    num_bytes: int


@dataclass(slots=True)
class _Entry:
    """Where the frames of one request are."""

    begun: _Place | None = None
    ended: _Place | None = None


@dataclass(slots=True)
class _Segment:
    """One file, and where the frames of its steps are: there may be millions."""

    path: Path
    descriptor: int
    header: Header
    steps: "array[int]" = field(default_factory=lambda: array("Q"))  # offset and length, one after the other


class Recording:
    """The requests of a folder of segments, or of one segment, as they were when it was opened.

    Attributes:
        faults: what of it can't be read, in words: the ends of segments that were cut short or damaged, and files of a
            folder that are no segments of this format.
        num_headless: requests whose beginning is no longer there.
    """

    def __init__(self, path: Path) -> None:
        """See `open_recording`."""
        self.path = path
        self.faults: list[str] = []
        self._segments: list[_Segment] = []
        self._entries: dict[tuple[int, int], _Entry] = {}
        self._open = ExitStack()
        with ExitStack() as failing:
            failing.callback(self._open.close)
            for each in _segment_paths(path):
                try:
                    self._read(each)
                except RecordingError as error:
                    if each == path:
                        raise
                    self.faults.append(f"{error}; it is left out")
            failing.pop_all()
        self.num_headless = sum(entry.begun is None for entry in self._entries.values())

    @property
    def headers(self) -> list[Header]:
        """Of each run, the oldest first."""
        return list({segment.header.run: segment.header for segment in self._segments}.values())

    def __len__(self) -> int:
        return len(self._entries) - self.num_headless

    def requests(self) -> Iterator[RecordedRequest]:
        """All requests, in the order in which they began. Each is read from disk when its turn comes."""
        for key in sorted(self._entries):
            if self._entries[key].begun is not None:
                yield self._request(self._entries[key])

    def find(self, record_id: str) -> RecordedRequest | None:
        """The request with a `RecordedRequest.record_id`."""
        run, _, number = record_id.partition("-")
        key = (int(run), int(number)) if run.isdecimal() and number.isdecimal() else (0, 0)
        entry = self._entries.get(key)
        return self._request(entry) if entry is not None and entry.begun is not None else None

    def steps(self, run: int) -> Iterator[Stepped]:
        """The steps of a run, in order."""
        for number, segment in enumerate(self._segments):
            if segment.header.run == run:
                yield from self._steps_in(number)

    def steps_of(self, recorded: RecordedRequest) -> Iterator[Stepped]:
        """The steps in which a request had a row, in order."""
        entry = self._entries[recorded.header.run, recorded.begun.number]
        assert entry.begun is not None
        last = len(self._segments) - 1 if entry.ended is None else min(entry.ended.segment + 1, len(self._segments) - 1)
        for number in range(entry.begun.segment, last + 1):
            if self._segments[number].header.run == recorded.header.run:
                yield from (step for step in self._steps_in(number) if recorded.begun.number in step.numbers)

    def close(self) -> None:
        """Close the files."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _steps_in(self, number: int) -> Iterator[Stepped]:
        places = self._segments[number].steps
        for at in range(0, len(places), 2):
            step = self._frame(_Place(number, places[at], places[at + 1]))
            assert isinstance(step, Stepped)
            yield step

    def _request(self, entry: _Entry) -> RecordedRequest:
        assert entry.begun is not None
        begun = self._frame(entry.begun)
        ended = None if entry.ended is None else self._frame(entry.ended)
        assert isinstance(begun, Begun)
        assert ended is None or isinstance(ended, Ended)
        return RecordedRequest(self._segments[entry.begun.segment].header, begun, ended)

    def _frame(self, place: _Place) -> Header | Begun | Ended | Stepped:
        segment = self._segments[place.segment]
        body = os.pread(segment.descriptor, place.num_bytes, place.offset)
        try:
            return decode(memoryview(body), place.offset)
        except DamagedError as error:
            raise RecordingError(f"{segment.path} changed while it was read: {error}") from None

    def _read(self, path: Path) -> None:
        """Note where a segment's frames are.

        Raises:
            RecordingError: it can't be read, or is no segment of this format.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._open.callback(os.close, descriptor)
            data = memoryview(_read_all(descriptor))
        except FileNotFoundError:
            return  # the ring has dropped it since we looked
        except OSError as error:
            raise RecordingError(f"the recording's segment {path} can't be read: {error.strerror}") from None
        if not check_preface(data, str(path)):
            return
        frames = bodies(data)
        try:
            first = next(frames, None)
            if first is None:
                return  # it ended before its header was written
            offset, body = first
            header = decode(body, offset)
            if not isinstance(header, Header):
                raise DamagedError(offset, "there is no header")
            self._segments.append(_Segment(path, descriptor, header))
            for offset, body in frames:
                self._note(_brief(body, offset), _Place(len(self._segments) - 1, offset + 8, len(body)))
        except DamagedError as error:
            self.faults.append(f"{path}: {error}; the rest of it, {len(data) - error.offset} bytes, is left out")

    def _note(self, brief: "_Brief", place: _Place) -> None:
        segment = self._segments[place.segment]
        match brief:
            case _Step():
                segment.steps.extend((place.offset, place.num_bytes))
            case _Begun(number):
                self._entries.setdefault((segment.header.run, number), _Entry()).begun = place
            case _Ended(number):
                self._entries.setdefault((segment.header.run, number), _Entry()).ended = place


def open_recording(path: Path) -> Recording:
    """Open a folder that a server records into, or one segment of it.

    Raises:
        RecordingError: there is none; or it is one segment that can't be read or has another format. In a folder, such
            a segment is one of the `Recording.faults`.
    """
    return Recording(path)


class _Header(msgspec.Struct, tag="header"):
    pass


class _Step(msgspec.Struct, tag="step"):
    pass


class _Begun(msgspec.Struct, tag="begun"):
    number: int


class _Ended(msgspec.Struct, tag="ended"):
    number: int


_Brief = _Header | _Step | _Begun | _Ended
_briefs = msgspec.msgpack.Decoder(_Brief)


def _brief(body: memoryview, offset: int) -> _Brief:
    """What kind of frame it is, and whose: the rest is skipped."""
    try:
        return _briefs.decode(body)
    except msgspec.MsgspecError as error:
        raise DamagedError(offset, f"a frame isn't one ({error})") from None


def _segment_paths(path: Path) -> list[Path]:
    """The segments, the oldest first.

    Raises:
        RecordingError: there is no recording.
    """
    if path.is_file():
        return [path]
    try:
        found = sorted(each for each in path.iterdir() if each.suffix == SUFFIX)
    except OSError as error:
        raise RecordingError(f"there is no recording in {path}: {error.strerror}; `--record full` makes one") from None
    if not found:
        raise RecordingError(f"there is no recording in {path}; a server with `--record full` makes one")
    return found


def _read_all(descriptor: int) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read()
