"""How long answers take, and how many tokens they have: histograms for the metrics.

Names and buckets are vLLM's (docs/metrics.md). An answer is what vLLM calls a request: one of `n` to one prompt.
Changed by the event loop's thread alone; all of it is O(1).
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from freehold.observe.histogram import Histogram
from freehold.protocol import Finish
from freehold.serve.entrance.record import AnswerProgress, Record, Watcher

TTFT_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip

TOKEN_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0,
)  # fmt: skip
"""Between tokens. Those below 0.01 are ours: small models need them."""

E2E_S = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip

STAGE_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.2, *E2E_S)
"""Of waiting, computing a prompt, and growing. Those below 0.3 are ours: most requests should wait shorter."""


Ending = Literal["stop", "length", "tool_calls", "abort", "error"]
"""Why an answer ended: by itself, as `TextResult.finish_reason` says, or as vLLM calls it if it didn't."""


def one_two_five(largest: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50 and so on, up to `largest`."""
    bounds: list[int] = []
    scale = 1
    while scale <= largest:
        bounds += [step * scale for step in (1, 2, 5) if step * scale <= largest]
        scale *= 10
    return tuple(bounds)


class Timings(Watcher):
    """Of all answers since the server's start.

    Args:
        max_model_len: tokens that a prompt and its answer can have.

    Attributes:
        ttft: from the request's arrival to an answer's first token.
        itl: from a token to the next. Of tokens that came together each gets an equal share.
        tpot: of an answer of two or more tokens that ended by itself, the mean of that.
        e2e: of answers that ended by themselves, from the request's arrival to their end.
        queue: from when the engine was asked to the first step with the answer in it; as long as it waited if none was.
        prefill: from there to its first token.
        decode: from there to its end in the engine.
        prompt_tokens: of each prompt that is charged, once.
        generation_tokens: of each answer that the engine took on.
        num_tokens: given out.
        ends: answers that the engine took on, by why they ended: ``stop``, ``length`` or ``tool_calls`` if they did so
            by themselves, ``error`` if the engine failed, ``abort`` if nobody wanted more.
    """

    def __init__(self, max_model_len: int) -> None:
        self.ttft = Histogram(TTFT_S)
        self.itl = Histogram(TOKEN_S)
        self.tpot = Histogram(TOKEN_S)
        self.e2e = Histogram(E2E_S)
        self.queue = Histogram(STAGE_S)
        self.prefill = Histogram(STAGE_S)
        self.decode = Histogram(STAGE_S)
        self.prompt_tokens = Histogram(one_two_five(max_model_len))
        self.generation_tokens = Histogram(one_two_five(max_model_len))
        self.num_tokens = 0
        self.ends: Counter[str] = Counter()

    def saw_tokens(self, record: Record, answer: AnswerProgress, num_tokens: int, gap_s: float | None) -> None:
        self.num_tokens += num_tokens
        if gap_s is None:
            self.ttft.add(answer.last_s - record.started_s)
            if num_tokens > 1:
                self.itl.add(0.0, num_tokens - 1)
        elif num_tokens == 1:
            self.itl.add(gap_s)
        else:
            self.itl.add(gap_s / num_tokens, num_tokens)

    def saw_finish(self, record: Record, answer: AnswerProgress, finish: Finish) -> None:
        self._end_if_over(record, answer)
        stages = finish.stages
        if stages is None or record.queued_s is None:
            return
        started_s = stages.ended_s if stages.started_s is None else stages.started_s
        self.queue.add(max(0.0, started_s - record.queued_s))
        if stages.first_token_s is not None:
            self.prefill.add(stages.first_token_s - started_s)
            self.decode.add(stages.ended_s - stages.first_token_s)

    def saw_result(self, record: Record, answer: AnswerProgress) -> None:
        assert answer.ended_s is not None
        self.e2e.add(answer.ended_s - record.started_s)
        if answer.num_tokens > 1:
            self.tpot.add((answer.last_s - answer.first_s) / (answer.num_tokens - 1))
        self._count(answer, answer.end)

    def saw_over(self, record: Record) -> None:
        for answer in record.answers.values():
            self._end_if_over(record, answer)

    def saw_used(self, prompt_lengths: Sequence[int]) -> None:
        """A request has ended, and is charged for prompts of so many tokens."""
        for num_tokens in prompt_lengths:
            self.prompt_tokens.add(num_tokens)

    def _end_if_over(self, record: Record, answer: AnswerProgress) -> None:
        """Count an answer that will never have a result, once the engine's end of it and the request's are known."""
        if record.is_over and answer.engine_end and not answer.end:
            self._count(answer, "error" if answer.engine_end == "failed" else "abort")

    def _count(self, answer: AnswerProgress, end: str) -> None:
        self.ends[end] += 1
        self.generation_tokens.add(answer.num_tokens)
