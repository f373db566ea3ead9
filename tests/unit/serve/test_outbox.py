"""The queue before the thread that sends: bounded, never in the way, and nothing is lost uncounted."""

import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from freehold.serve.tracing.outbox import Outbox, Room

WAIT_S = 30.0


class Sender:
    """Sends by remembering; can be held, and can lose."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.free = threading.Event()
        self.free.set()
        self.entered = threading.Event()
        self.loses = False

    def __call__(self, items: Sequence[int]) -> int:
        self.entered.set()
        assert self.free.wait(WAIT_S)
        self.batches.append(list(items))
        return len(items) if self.loses else 0

    @property
    def sent(self) -> list[int]:
        return [item for batch in self.batches for item in batch]


@pytest.fixture
def sender() -> Iterator[Sender]:
    sender = Sender()
    yield sender
    sender.free.set()


def outbox(
    sender: Sender,
    *,
    max_items: int = 100,
    max_bytes: int = 1000,
    max_batch: int = 4,
    max_batch_bytes: int = 100,
    linger_s: float = 0.0,
) -> Outbox[int]:
    return Outbox(sender, room=Room(max_items, max_bytes), batch=Room(max_batch, max_batch_bytes), linger_s=linger_s)


def test_all_is_sent_in_order_and_in_batches(sender: Sender) -> None:
    box = outbox(sender, linger_s=WAIT_S)
    for item in range(9):
        box.put(item, 1)
    box.close(WAIT_S)
    assert sender.sent == list(range(9))
    assert max(map(len, sender.batches)) == 4, "full batches don't linger, and none is larger"
    assert box.num_lost == 0


def test_batches_are_bounded_in_bytes_but_for_what_is_longer_itself(sender: Sender) -> None:
    sender.free.clear()
    box = outbox(sender, max_batch_bytes=10)
    for item, num_bytes in enumerate((1, 4, 6, 1, 500, 3, 3)):
        box.put(item, num_bytes)
        assert sender.entered.wait(WAIT_S)
    sender.free.set()
    box.close(WAIT_S)
    assert sender.batches == [[0], [1, 2], [3], [4], [5, 6]]


def test_the_first_waits_for_others_for_a_while(sender: Sender) -> None:
    box = outbox(sender, linger_s=0.2)
    box.put(1, 1)
    box.put(2, 1)
    assert sender.entered.wait(WAIT_S)
    box.close(WAIT_S)
    assert sender.batches == [[1, 2]]


@pytest.mark.parametrize("max_items", [3, 1])
def test_what_has_no_room_is_lost_and_counted(sender: Sender, max_items: int) -> None:
    box = outbox(sender, max_items=max_items)
    sender.free.clear()
    box.put(0, 1)
    assert sender.entered.wait(WAIT_S)
    for item in range(1, 11):
        box.put(item, 1)
    assert box.num_lost == 10 - max_items
    sender.free.set()
    box.close(WAIT_S)
    assert sender.sent == list(range(max_items + 1)), "the older ones stay"


def test_room_is_bytes_too_and_comes_back(sender: Sender) -> None:
    box = outbox(sender, max_bytes=10)
    sender.free.clear()
    box.put(0, 10)
    assert sender.entered.wait(WAIT_S)
    for item, num_bytes in ((1, 6), (2, 5), (3, 4)):
        box.put(item, num_bytes)
    assert box.num_lost == 1
    sender.free.set()
    box.close(WAIT_S)
    assert sender.sent == [0, 1, 3]


def test_what_the_sender_loses_is_counted(sender: Sender) -> None:
    sender.loses = True
    box = outbox(sender)
    for item in range(6):
        box.put(item, 1)
    box.close(WAIT_S)
    assert box.num_lost == 6


def test_a_hanging_sender_holds_up_neither_putting_nor_closing_for_long(sender: Sender) -> None:
    box = outbox(sender, max_items=5)
    sender.free.clear()
    box.put(0, 1)
    assert sender.entered.wait(WAIT_S)
    began_s = time.monotonic()
    for item in range(1, 1000):
        box.put(item, 1)
    box.close(0.05)
    assert time.monotonic() - began_s < WAIT_S / 2, "it hangs for longer"
    assert box.num_lost == 1000, "what is in the sender's hands is lost as well"
    box.put(1000, 1)
    assert box.num_lost == 1001
    sender.loses = True
    sender.free.set()
    box._thread.join(WAIT_S)
    assert box.num_lost == 1001, "nothing is counted twice"
