"""Where a repeated answer first differs from the recorded one."""

from collections.abc import Sequence

import msgspec

from freehold.observe.record.format import Ended
from freehold.protocol import Finish, Logprobs


class Answer(msgspec.Struct):
    """What an engine answered, as its events brought it."""

    token_ids: list[int] = msgspec.field(default_factory=list)
    digests: list[int] = msgspec.field(default_factory=list)
    logprobs: list[Logprobs] = msgspec.field(default_factory=list)
    prompt_logprobs: list[Logprobs] = msgspec.field(default_factory=list)
    finish: Finish | None = None


class Side(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of both answers where they differ.

    Attributes:
        token_id: None if the answer had ended before.
        digest: hexadecimal, as not every reader of JSON keeps large numbers whole.
    """

    token_id: int | None = None
    logprob: float | None = None
    digest: str | None = None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first difference between two answers. Positions count the answer's ids from 0.

    Attributes:
        position: where ids, log probabilities or digests first differ; of the prompt, if `in_prompt`.
        logits_at, id_at: where digests of logits, and where ids, first differ; None: nowhere.
        in_prompt: log probabilities of the prompt differ.
    """

    position: int
    recorded: Side
    repeated: Side
    logits_at: int | None = None
    id_at: int | None = None
    in_prompt: bool = False


def compare(recorded: Ended, answer: Answer) -> Difference | None:
    """The first difference; None if there is none, to the last bit of what was recorded."""
    prompt_at = _first(recorded.prompt_logprobs, answer.prompt_logprobs)
    if prompt_at is not None:
        return Difference(
            position=prompt_at + 1,
            recorded=Side(logprob=_logprob(recorded.prompt_logprobs, prompt_at)),
            repeated=Side(logprob=_logprob(answer.prompt_logprobs, prompt_at)),
            in_prompt=True,
        )
    id_at = _first(recorded.token_ids, answer.token_ids)
    logits_at = _first(recorded.digests, answer.digests) if recorded.digests else None
    scores_at = _first(recorded.logprobs, answer.logprobs) if recorded.logprobs else None
    places = [place for place in (id_at, logits_at, scores_at) if place is not None]
    if not places:
        return None
    at = min(places)
    return Difference(
        position=at,
        recorded=_side(recorded.token_ids, recorded.logprobs, recorded.digests, at),
        repeated=_side(answer.token_ids, answer.logprobs, answer.digests, at),
        logits_at=logits_at,
        id_at=id_at,
    )


def _first(recorded: Sequence[object], repeated: Sequence[object]) -> int | None:
    """Where two sequences first differ. Floats are equal if they are the same number."""
    for position, (one, other) in enumerate(zip(recorded, repeated, strict=False)):
        if one != other:
            return position
    return None if len(recorded) == len(repeated) else min(len(recorded), len(repeated))


def _side(ids: Sequence[int], logprobs: Sequence[Logprobs], digests: Sequence[int], at: int) -> Side:
    return Side(
        token_id=ids[at] if at < len(ids) else None,
        logprob=_logprob(logprobs, at),
        digest=f"{digests[at]:016x}" if at < len(digests) else None,
    )


def _logprob(logprobs: Sequence[Logprobs], at: int) -> float | None:
    return logprobs[at].logprob if at < len(logprobs) else None
