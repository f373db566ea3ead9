"""Lines of the list of requests."""

from freehold.serve.entrance.gate import outcome_of
from freehold.serve.entrance.record import Record
from freehold.serve.live.board import Board, Followed
from freehold.serve.live.schema import RequestLine, Requests, Stage
from freehold.serve.service import Service

MAX_LIVE = 200
"""Requests that have not ended which are listed."""


def requests_of(service: Service, since_s: float) -> Requests:
    """The live requests, and those that ended after `since_s` (Unix seconds)."""
    board = service.board
    live = list(board.live.values())
    ended = [followed for followed in board.ended if _ended_at(board, followed) > since_s]
    return Requests(
        num_live=len(live),
        live=[_line(service, followed) for followed in live[:MAX_LIVE]],
        ended=[_line(service, followed) for followed in ended],
    )


def _line(service: Service, followed: Followed) -> RequestLine:
    record = followed.record

    def offset(at_s: float | None) -> float | None:
        return None if at_s is None else round(at_s - record.started_s, 6)

    return RequestLine(
        id=record.request_id,
        at=round(service.board.at_s(record.started_s), 3),
        stage=_stage(record),
        key=service.gatekeeper.name_of(record.key_id),
        surface=followed.surface,
        service=record.service,
        is_stream=record.is_stream,
        num_answers=record.num_answers,
        tokenized_s=offset(record.tokenized_s),
        queued_s=offset(record.queued_s),
        started_s=offset(record.begun_s),
        first_token_s=offset(record.first_s),
        ended_s=offset(record.ended_s),
        num_prompt_tokens=record.num_prompt_tokens,
        num_cached_tokens=record.num_cached_tokens,
        num_output_tokens=record.num_output_tokens,
        num_preemptions=sum(stages.num_preemptions for stages in record.stages),
        status=record.status,
        outcome=_outcome(record),
        unread_s=round(record.unread_s, 3),
        num_unread_bytes=0 if record.ended_s is not None else record.num_unread_bytes,
    )


def _stage(record: Record) -> Stage:
    if record.ended_s is not None:
        return "ended"
    if record.first_s is not None:
        return "answering"
    if record.queued_s is not None:
        return "queued"
    return "arrived" if record.tokenized_s is None else "tokenized"


def _outcome(record: Record) -> str:
    """Why the answers ended, or else the code of the error."""
    if record.ended_s is None:
        return ""
    return record.outcome or record.code or outcome_of(record)


def _ended_at(board: Board, followed: Followed) -> float:
    ended_s = followed.record.ended_s
    assert ended_s is not None
    return board.at_s(ended_s)
