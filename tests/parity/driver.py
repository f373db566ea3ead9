"""A runner of fixed schedules: drives a backend through the step contract as an engine would, deciding nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from freehold.backends.base import Backend, FedBy, Row, RowResult, RowSampling, Step, StepId

GREEDY = RowSampling(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, seed=0, choice=0)


@dataclass(frozen=True)
class Request:
    """A prompt to continue by a fixed number of ids in given blocks."""

    prompt: Sequence[int]
    blocks: Sequence[int]
    sampling: RowSampling = GREEDY
    num_ids: int = 12


@dataclass
class Answer:
    """What came out: ids, and the digest of the logits behind each."""

    token_ids: list[int] = field(default_factory=list)
    digests: list[int] = field(default_factory=list)


class Driver:
    """Numbers a backend's steps."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._next_step = 0

    def submit(self, rows: Sequence[Row]) -> StepId:
        step_id = StepId(self._next_step)
        self._next_step += 1
        self.backend.submit(Step(step_id, rows))
        return step_id

    def run(self, *rows: Row) -> list[RowResult]:
        """One step alone."""
        return list(self.backend.collect(self.submit(rows)).rows)

    def forced(self, token_ids: Sequence[int], blocks: Sequence[int], start_pos: int = 0) -> np.ndarray:
        """Logits after every token."""
        row = Row(start_pos, token_ids, np.array(blocks, np.int32), num_sampled=0, want_logits=True)
        (result,) = self.run(row)
        assert result.logits is not None
        return result.logits

    def answer(self, requests: Sequence[Request], *, chunk_size: int, fed: bool = True) -> list[Answer]:
        """Continue all requests together.

        Args:
            chunk_size: prompt tokens a row computes in a step.
            fed: rows take their input from the step before, which still runs; otherwise each step is collected first.
        """
        answers = [Answer() for _ in requests]
        known = [list(request.prompt) for request in requests]
        computed = [0] * len(requests)
        produced = [0] * len(requests)
        last: tuple[StepId, dict[int, int]] | None = None  # the step before, and which row each request had in it

        def collect() -> None:
            assert last is not None
            results = self.backend.collect(last[0]).rows
            for index, row in last[1].items():
                assert results[row].finite
                answers[index].token_ids += results[row].token_ids
                answers[index].digests += results[row].digests
                known[index] += results[row].token_ids

        while any(done < request.num_ids for done, request in zip(produced, requests, strict=True)):
            rows: list[Row] = []
            places: dict[int, int] = {}
            for index, request in enumerate(requests):
                if produced[index] == request.num_ids:
                    continue
                start = computed[index]
                end = min(start + chunk_size, len(request.prompt)) if start < len(request.prompt) else start + 1
                token_ids = known[index][start:end]
                fed_by = FedBy(last[0], last[1][index]) if last and not token_ids else None
                samples = end >= len(request.prompt)
                rows.append(
                    Row(
                        start_pos=start,
                        token_ids=token_ids,
                        block_ids=np.array(request.blocks, np.int32),
                        num_sampled=int(samples),
                        sampling=request.sampling if samples else None,
                        fed_by=fed_by,
                        want_digests=samples,
                    )
                )
                places[index] = len(rows) - 1
                computed[index] = end
                produced[index] += int(samples)
            step_id = self.submit(rows)
            if fed and last:
                collect()
            last = (step_id, places)
            if not fed:
                collect()
                last = None
        if last:
            collect()
        return answers
