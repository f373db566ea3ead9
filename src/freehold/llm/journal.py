"""A file that a batch's completions are appended to, so that a run that was broken off can go on.

Lines of JSON, in this order: one that tells the format and the engine; then completions, each after the parameters that
it was made with, which are written when they first occur. Each line is written by one call before its completion is
given out, so the death of the process loses nothing that was seen. The file is synchronized with the disk once a
second and at the end: the death of the machine loses the last second. All lines but the first, which is compared whole,
end with a checksum, so that an answer is never taken from a line that has changed.

Only answers that ended well are recorded; others are tried again by the next run.
"""

import fcntl
import os
import stat
import time
import weakref
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from freehold.errors import JournalError, shown
from freehold.llm.completion import Answer, Completion
from freehold.protocol import EngineInfo
from freehold.text.params import MAX_N, SamplingParams

FORMAT = 2
SYNC_S = 1.0
_HEAD = b'{"kind":"freehold-journal"'
_SEAL = b',"check":"%08x"}\n'
_SEAL_BYTES = len(_SEAL % 0)


class _Header(msgspec.Struct, frozen=True, tag_field="kind", tag="freehold-journal"):
    """What all answers depend on beside prompt and parameters."""

    format: int
    fingerprint: str
    model_family: str
    backend: str
    max_model_len: int


class _Params(msgspec.Struct, frozen=True, tag_field="kind", tag="params"):
    """Parameters, and the number that completions name them by."""

    number: int
    values: dict[str, Any]


class _Record(msgspec.Struct, frozen=True, tag_field="kind", tag="completion"):
    """A completion, with a hash of its prompt's ids."""

    params: int
    prompt_hash: str
    completion: Completion


_header_decoder = msgspec.json.Decoder(_Header)
_line_decoder: msgspec.json.Decoder[_Params | _Record] = msgspec.json.Decoder(_Params | _Record)
_encoder = msgspec.json.Encoder()


class Journal:
    """The journal at a path, made if there is none. One process may have it open at a time.

    It remembers where each recorded completion stands in the file: some hundred bytes of memory each.
    """

    def __init__(self, path: Path, info: EngineInfo, expected: Iterable[tuple[SamplingParams, bool]] = ()) -> None:
        """
        Args:
            expected: parameters that all prompts will have, and whether digests are wanted.

        Raises:
            JournalError: another run has it open; it isn't a journal, or damaged within; or it comes from another
                model, other settings or other parameters, and the message says what differs.
        """
        self._path = path
        self._offsets: dict[int, int] = {}
        self._params: dict[int, dict[str, Any]] = {}
        self._numbers: dict[bytes, int] = {}  # of parameters, by their JSON
        self._next_number = 0
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise JournalError(f"can't open the journal {path}: {error.strerror}") from None
        except ValueError:
            raise JournalError(f"can't open the journal {shown(str(path))}: no path holds a null character") from None
        self._let_go = weakref.finalize(self, os.close, self._file)
        try:
            self._check_file()
            self._lock()
            self._read(_Header(FORMAT, info.fingerprint, info.model_family, info.backend, info.max_model_len))
            for params, digests in expected:
                self._expect(_values(params, digests))
        except BaseException:
            self._let_go()
            raise
        self._synced_s = time.monotonic()

    def find(self, answer: Answer) -> Completion | None:
        """The completion that is recorded for an answer.

        Raises:
            JournalError: one for another prompt or other parameters is.
        """
        offset = self._offsets.get(_key(answer.prompt_index, answer.job.generate.sampling.choice))
        if offset is None:
            return None
        record = self._record_at(offset)
        if record.prompt_hash != _hash(answer.job.generate.prompt_ids):
            raise JournalError(
                f"{self._path} holds an answer to another prompt {answer.prompt_index}: "
                "give the same prompts in the same order, or another journal"
            )
        values = _values(answer.params, answer.job.generate.digests)
        if self._params[record.params] != values:
            raise self._other_params(self._params[record.params], values)
        return record.completion

    def add(self, answer: Answer, completion: Completion) -> None:
        """Record a completion, unless it is of no use to a later run.

        Raises:
            OSError: the disk is full or broken.
        """
        if completion.finish_reason not in ("stop", "length"):
            return
        number = self._number(_values(answer.params, answer.job.generate.digests))
        self._write(_Record(number, _hash(answer.job.generate.prompt_ids), completion))
        if time.monotonic() - self._synced_s >= SYNC_S:
            self._sync()

    def close(self) -> None:
        """Synchronize with the disk and let go of the file."""
        self._sync()
        self._let_go()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JournalError(f"another run has the journal {self._path} open; give this one another") from None

    def _check_file(self) -> None:
        """Refuse what may never end (devices, pipes), and what has another beginning, before a line of it is read."""
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            raise JournalError(f"{self._path} is no regular file, which a journal must be; give another path")
        if not _HEAD.startswith(os.pread(self._file, len(_HEAD), 0)):
            raise JournalError(f"{self._path} is no journal of Freehold's; give another path")

    def _read(self, header: _Header) -> None:
        """Take in what is there, and cut off a last line that isn't whole."""
        num_bytes, end = os.fstat(self._file).st_size, 0
        with self._path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    self._take_line(number, line, end, header)
                except (msgspec.MsgspecError, UnicodeDecodeError, LookupError):
                    if end + len(line) < num_bytes:
                        raise JournalError(
                            f"line {number} of {self._path} is damaged; delete it and its answer is computed again"
                        ) from None
                    break
                end += len(line)
        os.ftruncate(self._file, end)
        if end == 0:
            self._write(header)

    def _take_line(self, number: int, line: bytes, offset: int, header: _Header) -> None:
        """
        Raises:
            msgspec.MsgspecError, UnicodeDecodeError, LookupError: the line isn't whole.
        """
        if not line.endswith(b"\n"):
            raise LookupError("no end of line")
        if number == 1:
            self._check(_header_decoder.decode(line), header)
            return
        if line != _sealed(line[:-_SEAL_BYTES] + b"}"):
            raise LookupError("the checksum is another line's")
        taken = _line_decoder.decode(line)
        if isinstance(taken, _Params):
            self._numbers[_encoder.encode(taken.values)] = taken.number
            self._params[taken.number] = taken.values
            self._next_number = max(self._next_number, taken.number + 1)
        elif taken.params in self._params:
            self._offsets[_key(taken.completion.prompt_index, taken.completion.choice)] = offset
        else:  # the line of its parameters was damaged and has been deleted: nobody may get their number
            self._next_number = max(self._next_number, taken.params + 1)

    def _check(self, old: _Header, new: _Header) -> None:
        if old != new:
            differences = _differences(msgspec.structs.asdict(old), msgspec.structs.asdict(new))
            raise JournalError(
                f"{self._path} was written with another model or other settings: {differences}; "
                "use the same, or another journal"
            )

    def _expect(self, values: dict[str, Any]) -> None:
        if self._params and _encoder.encode(values) not in self._numbers:
            raise self._other_params(next(iter(self._params.values())), values)

    def _other_params(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> JournalError:
        return JournalError(
            f"{self._path} was written with other parameters: {_differences(old, new)}; "
            "give the same, or another journal"
        )

    def _record_at(self, offset: int) -> _Record:
        with self._path.open("rb") as lines:
            lines.seek(offset)
            record = _line_decoder.decode(lines.readline())
        assert isinstance(record, _Record)
        return record

    def _number(self, values: dict[str, Any]) -> int:
        """The number of parameters; new ones are written."""
        text = _encoder.encode(values)
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = self._next_number
            self._next_number += 1
            self._params[number] = values
            self._write(_Params(number, values))
        return number

    def _write(self, line: _Header | _Params | _Record) -> None:
        text = _encoder.encode(line)
        rest = memoryview(text + b"\n" if isinstance(line, _Header) else _sealed(text))
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def _sync(self) -> None:
        os.fsync(self._file)
        self._synced_s = time.monotonic()


def _sealed(text: bytes) -> bytes:
    """A JSON object as a line with a checksum."""
    return text[:-1] + _SEAL % zlib.crc32(text)


def _key(prompt_index: int, choice: int) -> int:
    return prompt_index * MAX_N + choice


def _hash(prompt_ids: Sequence[int]) -> str:
    return blake2b(array("q", prompt_ids).tobytes(), digest_size=16).hexdigest()


def _values(params: SamplingParams, digests: bool) -> dict[str, Any]:
    """Parameters in one form: equal ones are equal, however they were spelled."""
    values = {
        field.name: float(value) if field.type is float else value
        for field in msgspec.structs.fields(SamplingParams)
        if (value := getattr(params, field.name)) != field.default
    }
    values |= {"stop": params.stop_strings, "stop_token_ids": sorted(set(params.stop_token_ids)), "digests": digests}
    if params.allowed_token_ids is not None:
        values["allowed_token_ids"] = sorted(set(params.allowed_token_ids))
    values["logit_bias"] = {str(token_id): float(bias) for token_id, bias in sorted(params.logit_bias.items())}
    plain: dict[str, Any] = msgspec.json.decode(_encoder.encode(values))
    return plain


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """What differs, for people."""
    default = {field.name: field.default for field in msgspec.structs.fields(SamplingParams)}
    return ", ".join(
        f"{name} was {old.get(name, default.get(name))!r} and is {new.get(name, default.get(name))!r}"
        for name in sorted({*old, *new})
        if old.get(name, default.get(name)) != new.get(name, default.get(name))
    )
