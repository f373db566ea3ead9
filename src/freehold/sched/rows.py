"""One request's row in a plan: what it asks for, and what its outcome says."""

from collections.abc import Iterator, Sequence

from freehold.protocol import FinishReason, PromptLogprobs, Tokens
from freehold.sched.plan import PlannedRow, RowOutcome
from freehold.sched.request import Request


def plan_row(request: Request, num_inputs: int, drafts: Sequence[int]) -> PlannedRow:
    """The row that computes the next `num_inputs` tokens of a request, and drafts after them. Changes nothing."""
    start_pos = request.num_planned
    end_pos = start_pos + num_inputs
    num_sampled = len(drafts) + 1 if end_pos == request.num_total and request.wants_answer else 0
    scored_ids = _scored_ids(request, start_pos, end_pos) if request.num_unscored else ()
    return PlannedRow(
        request_id=request.generate.request_id,
        start_pos=start_pos,
        token_ids=[*request.ids[start_pos:end_pos], *drafts],
        fed_by=request.fed_by if start_pos >= len(request.ids) else None,
        block_buffer=request.table.buffer,
        num_blocks=len(request.table),
        num_sampled=num_sampled,
        sampling=request.sampling if num_sampled else None,
        want_digests=request.generate.digests,
        deferred=request.is_masked and num_sampled > 0,
        context_buffer=request.context.buffer if request.context and num_sampled else None,
        scored_ids=scored_ids,
        num_scored=(request.generate.sampling.num_prompt_logprobs or 0) if scored_ids else 0,
    )


def _scored_ids(request: Request, start_pos: int, end_pos: int) -> Sequence[int]:
    """Prompt ids that follow the inputs. Those that were reported before a preemption come again if others in the row
    are still to be reported: they must begin with the row's first input."""
    if end_pos < request.num_prompt - request.num_unscored:
        return ()
    return request.ids[start_pos + 1 : min(end_pos + 1, request.num_prompt)]


def scores_of(request: Request, row: PlannedRow, outcome: RowOutcome) -> Iterator[PromptLogprobs]:
    """What a row has found out about its request's prompt, if it is news. Counts it as reported."""
    first_pos = request.num_prompt - request.num_unscored
    logprobs = tuple(outcome.scored[max(0, first_pos - row.start_pos - 1) :])
    if request.num_unscored and logprobs:
        request.num_unscored -= len(logprobs)
        yield PromptLogprobs(request_id=request.generate.request_id, start_pos=first_pos, logprobs=logprobs)


def ids_to_end(request: Request, token_ids: Sequence[int]) -> tuple[Sequence[int], FinishReason | None]:
    """Of sampled ids, those up to the one that ends the request, and why that one does; all and None if none does."""
    stop_ids, num_left = request.generate.sampling.stop_ids, request.max_total - len(request.ids)
    for num_taken, token_id in enumerate(token_ids, start=1):
        if token_id in stop_ids:
            return token_ids[:num_taken], "stop"
        if num_taken == num_left:
            return token_ids[:num_taken], "length"
    return token_ids, None


def take_ids(request: Request, token_ids: Sequence[int], outcome: RowOutcome) -> Tokens:
    """Add the first ids of an outcome to a request. Returns what to report."""
    is_first, num_taken = request.num_output == 0, len(token_ids)
    request.add_ids(token_ids)
    return Tokens(
        request_id=request.generate.request_id,
        token_ids=tuple(token_ids),
        digests=tuple(outcome.digests[:num_taken]),
        logprobs=tuple(outcome.logprobs[:num_taken]),
        started_s=request.started_s if is_first else None,
        held_s=request.held_s if is_first else 0.0,
    )
