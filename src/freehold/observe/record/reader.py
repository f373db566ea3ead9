"""Read a recording: the requests and steps in a folder of segments, also while a server writes into it."""

import io
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from freehold.errors import RecordingError
from freehold.observe.record.format import (
    HEAD_BYTES,
    PREFACE_BYTES,
    Begun,
    DamagedError,
    Ended,
    Frame,
    Header,
    Outcome,
    Stepped,
    bodies,
    decode,
    length_in,
    read_preface,
)
from freehold.observe.record.index import Index, Place, Places

SUFFIX = ".fhr"
_BUFFER_BYTES = 1 << 18


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


@dataclass(frozen=True, slots=True)
class _Segment:
    """One file.

    Attributes:
        end: where what can be read of it ends, in bytes.
    """

    path: Path
    descriptor: int
    header: Header
    end: int


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
        self._index = Index()
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
        self.num_headless = self._index.num_headless

    @property
    def headers(self) -> list[Header]:
        """Of each run, the oldest first."""
        return list({segment.header.run: segment.header for segment in self._segments}.values())

    def __len__(self) -> int:
        return self._index.num_begun

    def requests(self, *, newest_first: bool = False) -> Iterator[RecordedRequest]:
        """All requests, in the order in which they began, or the other way round. Each is read from disk when its turn
        comes."""
        for places in self._index.begun(newest_first=newest_first):
            yield self._request(places)

    def find(self, record_id: str) -> RecordedRequest | None:
        """The request with a `RecordedRequest.record_id`."""
        run, _, number = record_id.partition("-")
        if not (run.isdecimal() and number.isdecimal()):
            return None
        places = self._index.get(int(run), int(number))
        return None if places.begun is None else self._request(places)

    def steps(self, run: int) -> Iterator[Stepped]:
        """The steps of a run, in order, read from disk as they are asked for."""
        for segment in self._segments:
            if segment.header.run == run:
                yield from _steps_in(segment)

    def steps_of(self, recorded: RecordedRequest) -> Iterator[Stepped]:
        """The steps in which a request had a row, in order."""
        begun, ended = self._index.get(recorded.header.run, recorded.begun.number)
        assert begun is not None
        last = len(self._segments) - 1 if ended is None else ended.segment + 1
        for segment in self._segments[begun.segment : last + 1]:
            if segment.header.run == recorded.header.run:
                yield from (step for step in _steps_in(segment) if recorded.begun.number in step.numbers)

    def close(self) -> None:
        """Close the files."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _request(self, places: Places) -> RecordedRequest:
        assert places.begun is not None
        begun = self._frame(places.begun)
        ended = None if places.ended is None else self._frame(places.ended)
        assert isinstance(begun, Begun)
        assert ended is None or isinstance(ended, Ended)
        return RecordedRequest(self._segments[places.begun.segment].header, begun, ended)

    def _frame(self, place: Place) -> Frame:
        segment = self._segments[place.segment]
        with _changes_told(segment.path):
            num_bytes = length_in(os.pread(segment.descriptor, HEAD_BYTES, place.offset))
            if place.offset + num_bytes > segment.end:
                raise DamagedError(place.offset, "a frame is cut short")
            return decode(os.pread(segment.descriptor, num_bytes, place.offset + HEAD_BYTES), place.offset)

    def _read(self, path: Path) -> None:
        """Note where a segment's frames are.

        Raises:
            RecordingError: it can't be read, or is no segment of this format.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._open.callback(os.close, descriptor)
            self._index_segment(path, descriptor)
        except FileNotFoundError:
            return  # the ring has dropped it since we looked
        except OSError as error:
            raise RecordingError(f"the recording's segment {path} can't be read: {error.strerror}") from None

    def _index_segment(self, path: Path, descriptor: int) -> None:
        size, file = os.fstat(descriptor).st_size, _buffered(descriptor)
        if not read_preface(file, str(path)):
            return
        end = PREFACE_BYTES
        header: Header | None = None
        try:
            for offset, body in bodies(file, size):
                if header is None:
                    first = decode(body, offset)
                    if not isinstance(first, Header):
                        raise DamagedError(offset, "there is no header")
                    header = first
                else:
                    self._note(_brief(body, offset), header.run, Place(len(self._segments), offset))
                end = offset + HEAD_BYTES + len(body)
        except DamagedError as error:
            self.faults.append(f"{path}: {error}; the rest of it, {size - error.offset} bytes, is left out")
        if header is not None:
            self._segments.append(_Segment(path, descriptor, header, end))

    def _note(self, brief: "_Brief", run: int, place: Place) -> None:
        match brief:
            case _Begun(number):
                self._index.put_begun(run, number, place)
            case _Ended(number):
                self._index.put_ended(run, number, place)


def _steps_in(segment: _Segment) -> Iterator[Stepped]:
    file = _buffered(segment.descriptor)
    with _changes_told(segment.path):
        read_preface(file, str(segment.path))
        for offset, body in bodies(file, segment.end):
            if isinstance(_brief(body, offset), _Step):
                step = decode(body, offset)
                assert isinstance(step, Stepped)
                yield step


@contextmanager
def _changes_told(path: Path) -> Iterator[None]:
    """
    Raises:
        RecordingError: what could be read when the recording was opened can't any more.
    """
    try:
        yield
    except DamagedError as error:
        raise RecordingError(f"{path} changed while it was read: {error}") from None


class _Contents(io.RawIOBase):
    """A file from its beginning, wherever others read it through the same descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._offset = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        num_bytes = os.preadv(self._descriptor, [buffer], self._offset)
        self._offset += num_bytes
        return num_bytes


def _buffered(descriptor: int) -> io.BufferedReader:
    return io.BufferedReader(_Contents(descriptor), _BUFFER_BYTES)


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


def _brief(body: bytes, offset: int) -> _Brief:
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
