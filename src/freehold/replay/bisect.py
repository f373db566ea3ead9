"""When the same engine gives another answer: does it depend on what else runs?"""

from freehold.engine.handle import EngineHandle
from freehold.observe.record.reader import RecordedRequest, Recording
from freehold.replay.compare import Answer, compare
from freehold.replay.run import Pace, Repeater

MAX_NEIGHBOURS = 64


def neighbours(recording: Recording, recorded: RecordedRequest) -> list[RecordedRequest]:
    """Requests that had rows in the same steps, those of the earliest steps first."""
    own = recorded.begun.number
    numbers: dict[int, None] = {}
    for step in recording.steps_of(recorded):
        numbers |= dict.fromkeys(number for number in step.numbers if number not in {0, own})
    found = (recording.find(f"{recorded.header.run}-{number}") for number in list(numbers)[:MAX_NEIGHBOURS])
    return [each for each in found if each is not None]


def bisect(engine: EngineHandle, recording: Recording, recorded: RecordedRequest) -> str:
    """Repeat a request alone, twice, and beside the requests that it was recorded with; says what that tells.

    Raises:
        EngineError: the engine has ended.
    """
    beside = neighbours(recording, recorded)
    alone, again_alone = _repeat(engine, recorded, []), _repeat(engine, recorded, [])
    batched = _repeat(engine, recorded, beside)
    return f"request {recorded.record_id}, {_verdict(recorded, (alone, again_alone, batched), len(beside))}"


def _repeat(engine: EngineHandle, recorded: RecordedRequest, beside: list[RecordedRequest]) -> Answer | str:
    answers: dict[str, Answer | str] = {}

    def keep(each: RecordedRequest, answer: Answer | str) -> None:
        answers[each.record_id] = answer

    together = sorted([recorded, *beside], key=lambda each: each.begun.number)
    Repeater(engine, Pace(concurrency=len(together))).run(together, keep)
    return answers[recorded.record_id]


def _verdict(recorded: RecordedRequest, answers: tuple[Answer | str, Answer | str, Answer | str], num: int) -> str:
    alone, again_alone, batched = answers
    if isinstance(alone, str) or isinstance(again_alone, str) or isinstance(batched, str):
        return f"alone and beside {num} others: {'; '.join(answer for answer in answers if isinstance(answer, str))}"
    assert recorded.ended is not None
    if alone.token_ids != again_alone.token_ids or alone.digests != again_alone.digests:
        return "alone twice: two different answers, so it doesn't depend on what runs beside it"
    is_alone_same = compare(recorded.ended, alone) is None
    is_batched_same = compare(recorded.ended, batched) is None
    match is_alone_same, is_batched_same:
        case True, True:
            return f"alone twice and beside {num} others: always what was recorded; the difference came once"
        case True, False:
            return f"alone: what was recorded; beside {num} others: not. It depends on what runs beside it"
        case False, True:
            return f"alone: not what was recorded; beside {num} others: just that. It depends on what runs beside it"
    is_settled = alone.digests == batched.digests and alone.token_ids == batched.token_ids
    return (
        f"alone twice and beside {num} others: always the same, and not what was recorded: it differed then"
        if is_settled
        else f"alone and beside {num} others: two answers, neither of them what was recorded"
    )
