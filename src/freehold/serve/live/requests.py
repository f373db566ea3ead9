"""The list of requests: those that have not ended, and the last ones that have."""

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from freehold.access.keys import KeyId
from freehold.observe.state import Beginning, EngineState
from freehold.protocol import RequestId
from freehold.serve.entrance.record import Record
from freehold.serve.live.schema import RequestLine, Requests, Stage

MAX_LIVE = 200
"""Requests that have not ended which are told of."""
MAX_ENDED = 128
"""Requests that are remembered after their end."""


@dataclass(frozen=True, slots=True)
class _Live:
    """A request that has not ended."""

    record: Record
    surface: str


@dataclass(frozen=True, slots=True)
class _Progress:
    """How far a request is, by what the server knows and what the engine told.

    Attributes:
        compile_s, started_s, num_computed: as in `RequestLine`, but `started_s` is of the monotonic clock.
    """

    stage: Stage
    compile_s: float | None
    started_s: float | None
    num_computed: int


class RequestList:
    """Requests to generate. Of those that have ended only their lines are kept: records may hold long prompts.

    Args:
        name_of: a key's name.
        at_s: Unix seconds of a time of the monotonic clock.
    """

    def __init__(self, name_of: Callable[[str], str], at_s: Callable[[float], float]) -> None:
        self._name_of = name_of
        self._at_s = at_s
        self._live: dict[int, _Live] = {}
        self._ended: deque[tuple[float, RequestLine]] = deque(maxlen=MAX_ENDED)

    @property
    def live(self) -> Sequence[Record]:
        """Records of those that have not ended, by arrival."""
        return [live.record for live in self._live.values()]

    @property
    def num_by_key(self) -> Counter[KeyId]:
        """How many each key has that have not ended."""
        return Counter(KeyId(live.record.key_id) for live in self._live.values())

    def enter(self, record: Record, surface: str) -> None:
        """A request has come."""
        self._live[id(record)] = _Live(record, surface)

    def leave(self, record: Record) -> None:
        """It has ended."""
        live = self._live.pop(id(record))
        ended_s = record.ended_s = time.monotonic()
        self._ended.append((self._at_s(ended_s), self._line(live, _in_server(record))))

    def lines(self, since_s: float, engine: EngineState | None) -> Requests:
        """The live ones, and those that ended after a time.

        Args:
            since_s: Unix seconds.
            engine: what it told last, if it has told anything.
        """
        live = list(self._live.values())
        beginnings = {} if engine is None else {each.request_id: each for each in engine.beginnings}
        return Requests(
            num_live=len(live),
            live=[self._line(one, _progress(one.record, beginnings)) for one in live[:MAX_LIVE]],
            ended=[line for ended_at_s, line in self._ended if ended_at_s > since_s],
        )

    def _line(self, live: _Live, progress: _Progress) -> RequestLine:
        record = live.record

        def offset(time_s: float | None) -> float | None:
            return None if time_s is None else round(time_s - record.started_s, 6)

        return RequestLine(
            id=record.request_id,
            at=round(self._at_s(record.started_s), 3),
            stage=progress.stage,
            key=self._name_of(record.key_id),
            surface=live.surface,
            service=record.service,
            is_stream=record.is_stream,
            num_answers=record.num_answers,
            tokenized_s=offset(record.tokenized_s),
            compile_s=None if progress.compile_s is None else round(progress.compile_s, 6),
            queued_s=offset(record.queued_s),
            started_s=offset(progress.started_s),
            first_token_s=offset(record.first_s),
            ended_s=offset(record.ended_s),
            num_prompt_tokens=record.num_prompt_tokens,
            num_computed_tokens=progress.num_computed,
            num_cached_tokens=record.num_cached_tokens,
            num_output_tokens=record.num_output_tokens,
            num_preemptions=sum(stages.num_preemptions for stages in record.stages),
            status=record.status,
            outcome=_outcome(record),
            unread_s=round(record.unread_s, 3),
            num_unread_bytes=0 if record.ended_s is not None else record.num_unread_bytes,
        )


def _progress(record: Record, beginnings: Mapping[RequestId, Beginning]) -> _Progress:
    """How far a live request is: as the engine told last, if it is there and has no token."""
    known = [each for engine_id in record.engine_ids if (each := beginnings.get(engine_id)) is not None]
    if record.first_s is not None or not known:
        return _in_server(record)
    compile_s = None if record.compile_s is None else record.compile_s + max(each.held_s for each in known)
    begun_s = [each.started_s for each in known if each.started_s is not None]
    if not begun_s:
        stage: Stage = "compiling" if all(each.is_held for each in known) else "queued"
        return _Progress(stage, compile_s, None, 0)
    return _Progress("prefilling", compile_s, min(begun_s), _num_computed(record, beginnings))


def _num_computed(record: Record, beginnings: Mapping[RequestId, Beginning]) -> int:
    """Tokens of all its prompts. Answers to the same one share what is computed of it."""
    num_computed = [
        0 if (each := beginnings.get(engine_id)) is None else each.num_computed for engine_id in record.engine_ids
    ]
    per_prompt = max(1, len(num_computed) // max(1, len(record.prompt_lengths)))
    return sum(max(num_computed[at : at + per_prompt]) for at in range(0, len(num_computed), per_prompt))


def _in_server(record: Record) -> _Progress:
    """How far it is, as far as the server knows by itself."""
    num_computed = 0 if record.first_s is None else record.num_prompt_tokens
    return _Progress(_stage(record), record.compile_s, record.begun_s, num_computed)


def _stage(record: Record) -> Stage:
    if record.ended_s is not None:
        return "ended"
    if record.first_s is not None:
        return "answering"
    if record.tokenized_s is None:
        return "tokenizing"
    return "compiling" if record.is_compiling else "queued"


def _outcome(record: Record) -> str:
    """Why the answers ended, or else the code of the error; empty while none has ended."""
    if record.ended_s is None:
        return ""
    return record.outcome or record.code or "failed"
