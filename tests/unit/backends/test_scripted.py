"""The scripted backend answers by script, asynchronously, and catches whoever breaks the contract."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from freehold.backends.base import BackendOptions, FedBy, Row, RowSampling, Step, StepError, StepId
from freehold.backends.referee import ContractError
from freehold.backends.script import Answer, Break, FailStep, Gate, NotFinite, Pause, Scripts
from freehold.backends.scripted import ScriptedBackend

BLOCK = 16


@pytest.fixture
def scripts() -> Scripts:
    return Scripts()


@pytest.fixture
def backend(scripts: Scripts) -> Iterator[ScriptedBackend]:
    backend = ScriptedBackend(100, BackendOptions(8, BLOCK, max_rows=4, max_tokens=64), scripts)
    yield backend
    backend.close()


def row(start_pos: int, ids: list[int], blocks: list[int], **settings: Any) -> Row:
    """A row that samples once, of a request whose prompt has two ids, unless said otherwise."""
    num_prompt = settings.pop("num_prompt", 2)
    num_sampled = settings.setdefault("num_sampled", 1)
    sampling = RowSampling(0.0, 0, 1.0, 0.0, 0, 0, num_prompt) if num_sampled else None
    return Row(start_pos, ids, np.array(blocks, np.int32), sampling=sampling, **settings)


def run(backend: ScriptedBackend, step_id: int, *rows: Row) -> list[list[int]]:
    backend.submit(Step(StepId(step_id), rows))
    return [list(result.token_ids) for result in backend.collect(StepId(step_id)).rows]


def test_chunks_and_later_steps_follow_the_script(backend: ScriptedBackend, scripts: Scripts) -> None:
    scripts.add((1, 2), [7, 8, 9])
    assert run(backend, 0, row(0, [1], [3], num_sampled=0)) == [[]]
    assert run(backend, 1, row(1, [2], [3])) == [[7]]
    assert run(backend, 2, row(2, [7], [3])) == [[8]]
    assert run(backend, 3, row(0, [1, 2, 7, 8], [5])) == [[9]], "recomputed elsewhere"


def test_a_step_may_be_fed_by_the_one_before_while_it_runs(backend: ScriptedBackend, scripts: Scripts) -> None:
    gate = threading.Event()
    scripts.add((1, 2), [Gate(gate), 7, 8, 9])
    started_s = time.monotonic()
    backend.submit(Step(StepId(0), [row(0, [1, 2], [3])]))
    backend.submit(Step(StepId(1), [row(2, [], [3], fed_by=FedBy(StepId(0), 0))]))
    assert time.monotonic() - started_s < 30, "submit returns at once"
    gate.set()
    assert [list(r.token_ids) for r in backend.collect(StepId(0)).rows] == [[7]]
    assert [list(r.token_ids) for r in backend.collect(StepId(1)).rows] == [[8]]


@pytest.mark.parametrize(
    ("drafts", "ids"), [([8, 9], [8, 9, 10]), ([8, 5], [8, 9]), ([5, 9], [8]), ([5, 5], [8]), ([], [8])]
)
def test_drafts_are_verified_up_to_the_first_wrong_one(
    backend: ScriptedBackend, scripts: Scripts, drafts: list[int], ids: list[int]
) -> None:
    scripts.add((1, 2), [7, 8, 9, 10])
    run(backend, 0, row(0, [1, 2], [3]))
    assert run(backend, 1, row(2, [7, *drafts], [3], num_sampled=1 + len(drafts))) == [ids]
    last_pos, answer = 2 + len(ids), [7, 8, 9, 10, 7]
    assert run(backend, 2, row(last_pos, [ids[-1]], [3])) == [[answer[len(ids) + 1]]], "what was wrong is overwritten"


def test_faults_strike_where_the_script_says(backend: ScriptedBackend, scripts: Scripts) -> None:
    scripts.add((1, 2), [NotFinite(), 7])
    scripts.add((3, 4), [FailStep("torn"), 7])
    scripts.add((5, 6), [Break("gone"), 7])
    backend.submit(Step(StepId(0), [row(0, [1, 2], [0]), row(0, [8, 9], [1])]))
    assert [result.finite for result in backend.collect(StepId(0)).rows] == [False, True]
    with pytest.raises(StepError, match="torn"):
        run(backend, 1, row(0, [3, 4], [0]))
    assert run(backend, 2, row(0, [8, 9], [0])) == [[8]]
    for step_id, prompt in ((3, [5, 6]), (4, [8, 9])):
        with pytest.raises(RuntimeError, match="gone"):
            run(backend, step_id, row(0, prompt, [0]))


def test_a_deferred_row_waits_for_its_mask(backend: ScriptedBackend, scripts: Scripts) -> None:
    scripts.add((1, 2), [7, 8])
    for step_id, allowed, expected in ((0, {7, 3}, 7), (1, {40, 90}, 40)):
        mask = np.zeros(4, np.uint32)
        for token_id in allowed:
            mask[token_id // 32] |= np.uint32(1 << token_id % 32)
        backend.submit(Step(StepId(step_id), [row(0, [1, 2], [step_id], deferred=True)]))
        backend.sample(StepId(step_id), {0: mask[np.newaxis]})
        assert list(backend.collect(StepId(step_id)).rows[0].token_ids) == [expected]


def test_digests_name_the_context_and_logits_the_next_input(backend: ScriptedBackend) -> None:
    rows = [row(0, [1, 2], [0], want_digests=True, want_logits=True), row(0, [1, 2], [1], want_digests=True)]
    backend.submit(Step(StepId(0), [*rows, row(0, [1, 3], [2], want_digests=True)]))
    same, twin, other = backend.collect(StepId(0)).rows
    assert same.digests == twin.digests
    assert same.digests != other.digests
    assert same.logits is not None
    assert same.logits.shape == (2, 100)
    assert same.logits[0].argmax() == 2


def test_blocks_can_be_copied_saved_and_restored(backend: ScriptedBackend, scripts: Scripts) -> None:
    scripts.add((1, 2), [7, 8, 9])
    run(backend, 0, row(0, [1, 2], [3]))
    backend.copy_blocks([(3, 4)])
    saved = backend.read_block(3)
    assert run(backend, 1, row(2, [7], [4])) == [[8]]
    run(backend, 2, row(0, [9, 9], [3]))
    backend.write_block(3, saved)
    assert run(backend, 3, row(2, [7], [3])) == [[8]]


def test_closing_cuts_pauses_short() -> None:
    scripts = Scripts()
    scripts.add((1, 2), [Pause(3600), 7])
    backend = ScriptedBackend(100, BackendOptions(8, BLOCK, 4, 64), scripts)
    began_s = time.monotonic()
    backend.submit(Step(StepId(0), [row(0, [1, 2], [0])]))
    backend.close()
    backend.close()
    assert time.monotonic() - began_s < 3600


# What each test below does is a mistake that a scheduler could make.

MALFORMED = {
    "no rows": [],
    "no inputs": [row(0, [], [0])],
    "foreign id": [row(0, [1, 100], [0])],
    "foreign block": [row(0, [1, 2], [8])],
    "too few blocks": [row(0, [1] * (BLOCK + 1), [0])],
    "a block twice": [row(0, [1] * (BLOCK + 1), [0, 0])],
    "two writers": [row(0, [1, 2], [0]), row(0, [1, 3], [0])],
    "a reader of what another writes": [row(0, [1] * (BLOCK + 1), [0, 1]), row(0, [1, 3], [1])],
    "too many rows": [row(0, [1, 2], [i]) for i in range(5)],
    "too many inputs": [row(0, [1] * 65, [0, 1, 2, 3, 4])],
    "more samples than inputs": [row(0, [1, 2], [0], num_sampled=3)],
}


@pytest.mark.parametrize("rows", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_steps_are_refused(backend: ScriptedBackend, rows: list[Row]) -> None:
    with pytest.raises(ContractError):
        run(backend, 0, *rows)


WRONG = {
    "a gap": row(4, [8], [0]),
    "a wrong token": row(3, [9], [0]),
    "another's block": row(3, [8], [1]),
    "a prompt of another length": row(3, [8], [0], num_prompt=1),
    "fed by a row that sampled nothing": row(3, [], [0], fed_by=FedBy(StepId(1), 1)),
    "fed by the wrong row": row(3, [], [0], fed_by=FedBy(StepId(1), 2)),
    "fed by a step that never ran": row(3, [], [0], fed_by=FedBy(StepId(7), 0)),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_a_row_that_does_not_fit_what_was_computed_is_caught(
    backend: ScriptedBackend, scripts: Scripts, wrong: Row
) -> None:
    scripts.add((1, 2), [7, 8, 9])
    run(backend, 0, row(0, [1, 2], [0]))
    others = (row(0, [3, 4], [2], num_sampled=0), row(0, [5, 6, 5], [1]))
    assert run(backend, 1, row(2, [7], [0]), *others)[0] == [8]
    with pytest.raises(ContractError):
        run(backend, 2, wrong)


def test_stale_contents_of_a_reused_block_are_no_context(backend: ScriptedBackend) -> None:
    run(backend, 0, row(0, [1] * BLOCK, [0], num_sampled=0))
    run(backend, 1, row(0, [2] * BLOCK, [1], num_sampled=0))
    run(backend, 2, row(BLOCK, [1] * 4, [0, 2], num_sampled=0))
    with pytest.raises(ContractError, match="position"):
        run(backend, 3, row(BLOCK + 4, [2], [1, 2], num_sampled=0))


def test_blocks_of_a_step_in_flight_belong_to_its_requests(backend: ScriptedBackend, scripts: Scripts) -> None:
    gate = threading.Event()
    scripts.add((1, 2), [Gate(gate), 7])
    backend.submit(Step(StepId(0), [row(0, [1, 2], [0])]))
    with pytest.raises(ContractError, match="in flight"):
        backend.submit(Step(StepId(1), [row(0, [3, 4], [0])]))
    gate.set()
    backend.collect(StepId(0))


def test_steps_come_and_are_collected_in_order(backend: ScriptedBackend) -> None:
    run(backend, 0, row(0, [1, 2], [0]))
    with pytest.raises(ContractError):
        run(backend, 2, row(0, [1, 2], [0]))
    with pytest.raises(ContractError):
        backend.collect(StepId(0))


def test_scripts_by_prompt_by_rule_and_by_default() -> None:
    scripts = Scripts(default=lambda prompt: [len(prompt)])
    assert scripts.answer((1, 2, 3)).ids == (3,)
    scripts.add_rule(lambda prompt: prompt[0] == 1, lambda prompt: [50, *prompt])
    scripts.add_rule(lambda prompt: len(prompt) == 3, lambda prompt: [60])
    assert scripts.answer((1, 2, 3)).ids == (50, 1, 2, 3)
    assert scripts.answer((4, 2, 3)).ids == (60,)
    scripts.add((1, 2, 3), [70])
    assert scripts.answer((1, 2, 3)).ids == (70,)
    assert scripts.answer((9,)).ids == (1,)


def test_effects_strike_before_the_id_that_follows_and_once() -> None:
    answer = Answer.of([Pause(0.5), 5, NotFinite(), FailStep(), 6])
    assert answer.effects == {0: [Pause(0.5)], 1: [NotFinite(), FailStep()]}
    assert [answer.id_at(i) for i in range(5)] == [5, 6, 5, 6, 5]
