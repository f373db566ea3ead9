"""Masks: the ids that a request may sample, and matchers that fail it alone."""

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from engine_fixtures import Receiver, generate

from freehold.backends.script import FailStep, Scripts
from freehold.engine import masks as masks_module
from freehold.engine.client import Engine
from freehold.engine.masks import AllowedIds, Mask, Masks
from freehold.errors import RequestError
from freehold.protocol import Generate
from freehold.sched.plan import PlannedRow, StepPlan

VOCAB_SIZE = 70


def planned(name: str, *, drafts: Sequence[int] = (), deferred: bool = True) -> PlannedRow:
    return PlannedRow(
        request_id=name,
        start_pos=0,
        token_ids=[1, *drafts],
        fed_by=None,
        block_buffer=array("i"),
        num_blocks=0,
        num_sampled=1 + len(drafts),
        sampling=None,
        want_digests=False,
        deferred=deferred,
    )


def ids_of(mask: Mask) -> list[int]:
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()


class Counting:
    """Allows id n after n ids; does what it is told to at some of them."""

    def __init__(self, *, fails_at: int | None = None, empty_at: int | None = None, refuses: int | None = None) -> None:
        self.ids: list[int] = []
        self._fails_at, self._empty_at, self._refuses = fails_at, empty_at, refuses

    def fill(self, masks: Mask, drafts: Sequence[int]) -> None:
        for index in range(len(drafts) + 1):
            num_ids = len(self.ids) + index
            if num_ids == self._fails_at:
                raise RuntimeError("torn")
            if num_ids != self._empty_at:
                masks[index, num_ids // 32] = 1 << num_ids % 32

    def accept(self, token_id: int) -> None:
        if token_id == self._refuses:
            raise ValueError(f"{token_id} can't come")
        self.ids.append(token_id)


@pytest.mark.parametrize("vocab_size", [1, 31, 32, 33, 70])
def test_a_set_of_ids_is_the_mask_everywhere(vocab_size: int) -> None:
    for allowed in ([0], [vocab_size - 1], list(range(vocab_size)), list(range(0, vocab_size, 3))):
        masks = np.zeros((3, -(-vocab_size // 32)), np.uint32)
        AllowedIds(allowed, vocab_size).fill(masks, [0, 0])
        assert [ids_of(mask) for mask in masks] == [allowed] * 3


def test_rows_get_masks_if_and_only_if_they_are_deferred() -> None:
    masks = Masks(VOCAB_SIZE)
    masks.add(generate("a", (1,), allowed_ids=(3, 69)))
    masks.add(generate("b", (1,)))
    plan = StepPlan(0, [planned("b", deferred=False), planned("a", drafts=[3, 69]), planned("ended")])
    filled, failures = masks.fill(plan)
    assert {row: [ids_of(mask) for mask in rows] for row, rows in filled.items()} == {
        1: [[3, 69]] * 3,
        2: [list(range(VOCAB_SIZE))],
    }
    assert not failures


@pytest.fixture
def engine(scripted_engine: Engine) -> Engine:
    return scripted_engine


@pytest.fixture
def use_matcher(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Counting]]:
    """Requests with allowed ids get counting matchers instead."""

    def use(**settings: Any) -> list[Counting]:
        made: list[Counting] = []

        def make(generate: Generate, *_rest: Any) -> Counting | None:
            if not generate.sampling.allowed_ids:
                return None
            made.append(Counting(**settings))
            return made[-1]

        monkeypatch.setattr(masks_module, "matcher_of", make)
        return made

    return use


def answers(engine: Engine, **masked: Any) -> tuple[Receiver, Receiver]:
    """Of a request with a mask and of a plain one beside it."""
    receivers = Receiver(), Receiver()
    engine.submit(generate("masked", (5, 6, 7), max_tokens=6, allowed_ids=(1,), **masked), receivers[0])
    engine.submit(generate("plain", (8, 9), max_tokens=30), receivers[1])
    assert receivers[1].wait().reason == "length"
    assert receivers[1].token_ids == [8, 9] * 15
    receivers[0].wait()
    return receivers


def test_ids_outside_the_mask_are_not_sampled(engine: Engine) -> None:
    receiver = Receiver()
    engine.submit(generate("a", (5, 6, 7), max_tokens=6, allowed_ids=(3, 6)), receiver)
    assert receiver.wait().reason == "length"
    assert receiver.token_ids == [3, 6, 3, 3, 6, 3]


def test_a_matcher_follows_every_id(engine: Engine, use_matcher: Callable[..., list[Counting]]) -> None:
    made = use_matcher()
    masked, _ = answers(engine)
    assert masked.token_ids == [0, 1, 2, 3, 4, 5]
    assert [matcher.ids for matcher in made] == [[0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize(
    ("settings", "code", "num_ids"),
    [
        ({"fails_at": 0}, "mask_error", 0),
        ({"fails_at": 3}, "mask_error", 3),
        ({"empty_at": 0}, "mask_empty", 0),
        ({"empty_at": 2}, "mask_empty", 2),
        ({"refuses": 1}, "mask_error", 2),
    ],
)
def test_a_matcher_that_fails_ends_its_request_alone(
    engine: Engine, use_matcher: Callable[..., list[Counting]], settings: dict[str, int], code: str, num_ids: int
) -> None:
    use_matcher(**settings)
    masked, _ = answers(engine)
    assert masked.finish is not None
    assert (masked.finish.reason, masked.finish.code) == ("failed", code)
    assert masked.token_ids == list(range(num_ids))


def test_masks_are_brought_after_a_failed_step_too(engine: Engine, scripts: Scripts) -> None:
    scripts.add((1, 2), [4, 5, FailStep(), 6])
    receivers = [Receiver() for _ in range(3)]
    for index, receiver in enumerate(receivers):
        engine.submit(generate(str(index), (1, 2), max_tokens=9, allowed_ids=(4, 5)), receiver)
    assert {receiver.wait().code for receiver in receivers} == {"step_failed"}
    again = Receiver()
    engine.submit(generate("again", (3,), max_tokens=9, allowed_ids=(4, 5)), again)
    assert again.wait().reason == "length"
    assert again.token_ids == [4] * 9


def test_a_masked_request_may_be_cancelled_at_any_time(engine: Engine) -> None:
    for index in range(40):
        receiver = Receiver()
        request = generate(str(index), (5, 6), max_tokens=150, allowed_ids=(1, 2, 3))
        engine.submit(request, receiver)
        if index % 2:
            receiver.first.wait(60)
        engine.abort(request.request_id)
        assert receiver.wait().reason in ("cancelled", "length")


@pytest.mark.parametrize("ids", [(-1,), (1, 65536)])
def test_ids_outside_the_vocabulary_are_refused(engine: Engine, ids: tuple[int, ...]) -> None:
    with pytest.raises(RequestError, match="allowed_token_ids holds token id"):
        engine.submit(generate("a", (5,), allowed_ids=ids), Receiver())
    with pytest.raises(RequestError, match="logit_bias holds token id"):
        engine.submit(generate("a", (5,), logit_bias=tuple((i, 1.0) for i in ids)), Receiver())
