"""What stands in a segment of a recording, byte by byte.

A segment begins with `MAGIC` and the format's version (four bytes). Frames follow: the length of the body, the CRC-32
of the body (four bytes each), and the body, msgpack. All numbers are little-endian. The first frame is the `Header`.
A segment may end in the middle of a frame, if its server did.

A request has two frames, so that one that took the server down has left something: `Begun` when the engine is asked,
`Ended` when its last event came. They stand in different segments if many others lie between.
"""

import hashlib
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Literal, get_args

import msgspec

from freehold.errors import RecordingError
from freehold.protocol import EngineInfo, Generate, Logprobs, Stages, TokenTexts

MAGIC = b"FHRECORD"
FORMAT_VERSION = 1
MAX_FRAME_BYTES = 64 << 20

_WORD = 4
PREFACE_BYTES = len(MAGIC) + _WORD
HEAD_BYTES = 2 * _WORD
"""Of a frame, before its body: length and checksum."""

Detail = Literal["metadata", "full"]
"""Lengths and hashes, nothing that tells what was said; or everything that a replay needs."""

Outcome = Literal["finished", "stopped", "cancelled", "failed", "refused"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""Finished: a stop id, or the length. Stopped: a stop string came, and the engine was told to end. Cancelled: the
client left, or the server ended. Failed: an error of the engine's. Refused: the engine didn't take it."""


class Header(msgspec.Struct, frozen=True, kw_only=True, tag="header"):
    """Who recorded.

    Attributes:
        run: of the server: the number of its first segment. Records of one run are numbered together.
        unix_s, monotonic_s: the same moment on both clocks. All other times are the monotonic clock's.
        model_name: as clients call it.
        model_path: of its files on that machine.
        info: what the engine decided at start-up, with the identity of all that fixes tokens.
        tokenizer: hash of what the vocabulary's tokens write, hexadecimal.
    """

    run: int
    unix_s: float
    monotonic_s: float
    model_name: str
    model_path: str
    info: EngineInfo
    tokenizer: str

    def unix_time(self, monotonic_s: float) -> float:
        """A moment in Unix seconds. Changes of the machine's clock since the header don't matter."""
        return self.unix_s + (monotonic_s - self.monotonic_s)


class Traits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of a request's parameters, what tells nothing of its text. Names as in `freehold.protocol`."""

    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    choice: int
    service: str
    priority: int
    num_stop_ids: int
    has_grammar: bool
    has_thinking_limit: bool
    has_penalties: bool
    num_biases: int
    num_allowed_ids: int
    is_pinned: bool
    num_logprobs: int | None
    num_prompt_logprobs: int | None


class Begun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="begun"):
    """The engine was asked.

    Attributes:
        number: of the record within its run.
        request_id: the engine's name for it: each answer has its own.
        http_id: the client's request, as in the access log and ``x-request-id``.
        key_id: empty while no key exists.
        at_s: when, on the monotonic clock.
        hash_ids: one for each 512 ids of the prompt and one for the rest; equal if and only if all ids up to there, and
            the namespace of the prefix cache, are equal. Those of different runs can't be compared.
        generate: the whole request, in full detail. Names that clients made up are hashed.
    """

    number: int
    request_id: str
    http_id: str
    key_id: str
    detail: Detail
    at_s: float
    num_prompt_tokens: int
    hash_ids: tuple[int, ...]
    traits: Traits
    generate: Generate | None = None


class Ended(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="ended"):
    """A request has ended.

    Attributes:
        at_s: when its last event came to the server, on the monotonic clock.
        reason: the engine's, as in `Finish`; empty if it was refused.
        code, message: why it failed or was refused. The message only in full detail.
        stages: the engine's times.
        first_token_s: when its first ids came to the server.
        token_ids, logprobs, digests: of all ids that the engine sampled, what follows a stop string included. Only in
            full detail.
        prompt_logprobs: if they were asked for.
    """

    number: int
    at_s: float
    outcome: Outcome
    reason: str = ""
    code: str | None = None
    message: str | None = None
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    stages: Stages | None = None
    first_token_s: float | None = None
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[Logprobs, ...] = ()
    digests: tuple[int, ...] = ()
    prompt_logprobs: tuple[Logprobs, ...] = ()


class Stepped(msgspec.Struct, frozen=True, kw_only=True, tag="step"):
    """Who had rows in a step.

    Attributes:
        ended_s: when the engine had its results, on the monotonic clock.
        numbers: of the records of its rows, in the rows' order; 0: not recorded.
        num_inputs: tokens that each row computed.
    """

    step_id: int
    ended_s: float
    numbers: tuple[int, ...]
    num_inputs: tuple[int, ...]


Frame = Header | Begun | Ended | Stepped


def vocabulary_hash(texts: TokenTexts) -> str:
    """Of what all tokens write, hexadecimal: grammars depend on it, and prompts were made with it."""
    return hashlib.sha256(msgspec.msgpack.encode(texts)).hexdigest()


class DamagedError(Exception):
    """What follows in a segment can't be read.

    Attributes:
        offset: where, in bytes.
    """

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(f"{what} at byte {offset}")
        self.offset = offset


def preface() -> bytes:
    """What a segment begins with."""
    return MAGIC + FORMAT_VERSION.to_bytes(_WORD, "little")


def read_preface(file: BinaryIO, name: str) -> bool:
    """Whether a segment has begun; not if its server ended that moment.

    Raises:
        RecordingError: it is no segment, or one of another format.
    """
    data = file.read(PREFACE_BYTES)
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        raise RecordingError(f"{name} isn't a segment of a recording")
    if len(data) < PREFACE_BYTES:
        return False
    version = int.from_bytes(data[len(MAGIC) :], "little")
    if version != FORMAT_VERSION:
        raise RecordingError(
            f"{name} has format {version}, and this version of Freehold reads format {FORMAT_VERSION}; read it with "
            "the version that wrote it"
        )
    return True


class Encoder:
    """Makes frames."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()

    def encode(self, frame: Frame) -> bytes:
        """A frame with its length and checksum.

        Raises:
            RecordingError: it is larger than a frame may be.
        """
        body = self._encoder.encode(frame)
        if len(body) > MAX_FRAME_BYTES:
            raise RecordingError(f"a record has {len(body)} bytes; {MAX_FRAME_BYTES} are allowed")
        return len(body).to_bytes(_WORD, "little") + zlib.crc32(body).to_bytes(_WORD, "little") + body


_decoder = msgspec.msgpack.Decoder(Frame)


def length_in(head: bytes) -> int:
    """How many bytes of body follow a frame's head."""
    return int.from_bytes(head[:_WORD], "little")


def bodies(file: BinaryIO, end: int) -> Iterator[tuple[int, bytes]]:
    """The frames of a segment whose preface has been read: where each begins, and its body. One is held at a time.

    Args:
        end: of the segment, in bytes.

    Raises:
        DamagedError: the rest is cut short or isn't what was written.
    """
    at = PREFACE_BYTES
    while at < end:
        head = file.read(HEAD_BYTES)
        num_bytes = length_in(head)
        if at + HEAD_BYTES + num_bytes > end or num_bytes > MAX_FRAME_BYTES:
            raise DamagedError(at, "a frame is cut short")
        body = file.read(num_bytes)
        if len(body) < num_bytes:
            raise DamagedError(at, "a frame is cut short")
        if zlib.crc32(body) != int.from_bytes(head[_WORD:], "little"):
            raise DamagedError(at, "a checksum is wrong")
        yield at, body
        at += HEAD_BYTES + num_bytes


def decode(body: bytes, offset: int) -> Frame:
    """What a body says.

    Raises:
        DamagedError: nothing that this format has.
    """
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise DamagedError(offset, f"a frame isn't one ({error})") from None
