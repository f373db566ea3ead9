"""The ledger of tokens: what came in with the prompts, what was computed, reused or dropped, what was given out.

A position of a request is *reached* when its keys and values are there for the first time, computed or reused. What is
reached can be lost again by preemption, and computed or reused again; that is counted apart.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from freehold.kv.check import InvariantError
from freehold.sched.request import Request, Status


@dataclass(slots=True)
class TokenCounts:
    """Tokens since start-up. `check` says how they balance.

    Attributes:
        prompt: of all prompts that were taken in.
        prompt_computed, prompt_reused: of those, reached by computing and by reusing.
        prompt_unreached: of those, not reached before the request ended.
        submitted: inputs of all steps.
        in_flight: of those, in steps that are not applied.
        computed: of those, positions reached.
        recomputed: of those, positions that had been reached before.
        dropped: of those, to no avail: the step failed, or one that the row followed on; a NaN; a wrong guess; the
            request had ended.
        reused: positions reached by reusing.
        sampled: ids given out.
        ended_reached, ended_sampled: positions reached by, and ids given to, requests that have ended.
    """

    prompt: int = 0
    prompt_computed: int = 0
    prompt_reused: int = 0
    prompt_unreached: int = 0
    submitted: int = 0
    in_flight: int = 0
    computed: int = 0
    recomputed: int = 0
    dropped: int = 0
    reused: int = 0
    sampled: int = 0
    ended_reached: int = 0
    ended_sampled: int = 0

    def accept(self, request: Request) -> None:
        """A request was taken in."""
        self.prompt += request.num_prompt

    def reuse(self, request: Request, num_reused: int) -> None:
        """A request starts with its first `num_reused` positions there."""
        self.prompt_reused += _num_new_in_prompt(request, num_reused)
        self.reused += max(0, num_reused - request.num_reached)
        request.num_reached = max(request.num_reached, num_reused)

    def submit(self, num_inputs: int) -> None:
        """A row was planned."""
        self.submitted += num_inputs
        self.in_flight += num_inputs

    def settle(self, request: Request, start_pos: int, num_inputs: int, num_valid: int) -> None:
        """A row is no longer in flight. The first `num_valid` of its inputs were computed as they should be."""
        self.in_flight -= num_inputs
        num_valid = 0 if request.status is Status.ENDED else num_valid
        end_pos = start_pos + num_valid
        num_new = max(0, end_pos - max(start_pos, request.num_reached)) if num_valid else 0
        self.prompt_computed += _num_new_in_prompt(request, end_pos) if num_new else 0
        self.computed += num_new
        self.recomputed += num_valid - num_new
        self.dropped += num_inputs - num_valid
        request.num_reached = max(request.num_reached, end_pos if num_valid else 0)

    def end(self, request: Request) -> None:
        """A request has ended."""
        self.prompt_unreached += max(0, request.num_prompt - request.num_reached)
        self.ended_reached += request.num_reached
        self.ended_sampled += request.num_output

    def check(self, live: Iterable[Request]) -> None:
        """Compare the counts with each other and with the requests that have not ended.

        Raises:
            InvariantError: tokens were lost, or counted twice.
        """
        unreached = reached = sampled = 0
        for request in live:
            unreached += max(0, request.num_prompt - request.num_reached)
            reached += request.num_reached
            sampled += request.num_output
        is_balanced = (
            self.prompt == self.prompt_computed + self.prompt_reused + self.prompt_unreached + unreached
            and self.submitted == self.computed + self.recomputed + self.dropped + self.in_flight
            and self.computed + self.reused == self.ended_reached + reached
            and self.sampled == self.ended_sampled + sampled
        )
        if not is_balanced:
            more = f"{unreached} prompt tokens to come, {reached} reached, {sampled} sampled"
            raise InvariantError(f"the ledger of tokens doesn't balance with {more} of live requests: {self}")


@dataclass(slots=True)
class DraftCounts:
    """Guesses since start-up, of steps that were applied.

    Attributes:
        rows: rows that held guesses.
        guessed: ids of them.
        accepted: of those, the ones that were right and given out.
        accepted_by_place: of those, by how many ids were guessed before them in their row.
    """

    rows: int = 0
    guessed: int = 0
    accepted: int = 0
    accepted_by_place: list[int] = field(default_factory=list)

    def count(self, num_guessed: int, num_accepted: int) -> None:
        """A row with guesses was applied."""
        self.rows += 1
        self.guessed += num_guessed
        self.accepted += num_accepted
        self.accepted_by_place.extend([0] * (num_guessed - len(self.accepted_by_place)))
        for place in range(num_accepted):
            self.accepted_by_place[place] += 1


def _num_new_in_prompt(request: Request, end_pos: int) -> int:
    """Of the positions up to `end_pos`, those in the prompt that were not reached before."""
    return max(0, min(end_pos, request.num_prompt) - request.num_reached)
