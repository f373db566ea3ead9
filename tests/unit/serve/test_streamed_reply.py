"""Replies: parts of a stream are written in order, at once or later, and a client that leaves ends the work."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import closing

import pytest
from starlette.types import Message

from freehold.serve import reply
from freehold.serve.reply import ClientLeftError, while_connected

PARTS = [f"{number} ".encode() for number in range(300)]


def _writer(
    written: list[bytes], send: Callable[[Message], Awaitable[None]], write_now: Callable[[bytes], bool]
) -> reply._Writer:
    async def send_on(message: Message) -> None:
        await send(message)
        written.append(message["body"])

    return reply._Writer(send_on, write_now, b": beat\n\n")


@pytest.mark.parametrize("share_at_once", [0.0, 0.5, 1.0])
def test_parts_keep_their_order_however_each_is_written(share_at_once: float) -> None:
    draw = random.Random(3)
    written: list[bytes] = []

    def write_now(data: bytes) -> bool:
        if draw.random() >= share_at_once:
            return False
        written.append(data)
        return True

    async def slowly(_message: Message) -> None:
        for _ in range(draw.randrange(3)):
            await asyncio.sleep(0)

    async def run() -> None:
        with closing(_writer(written, slowly, write_now)) as writer:
            for part in PARTS:
                writer.write(part)
                if draw.random() < 0.3:
                    await asyncio.sleep(0)
            await writer.drain()

    asyncio.run(run())
    assert b"".join(written) == b"".join(PARTS)
    assert (len(written) == len(PARTS)) == (share_at_once == 1.0)  # what waits is sent together


def test_what_waits_is_dropped_with_the_stream() -> None:
    written: list[bytes] = []

    async def never(_message: Message) -> None:
        await asyncio.get_running_loop().create_future()

    async def run() -> None:
        with closing(_writer(written, never, lambda _data: False)) as writer:
            writer.write(b"a")
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1  # this one

    asyncio.run(run())
    assert not written


def test_silence_is_broken_only_where_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply, "HEARTBEAT_S", 0.02)
    monkeypatch.setattr(reply, "_SHORTEST_WAIT_S", 0.001)
    written: list[bytes] = []

    def write_now(data: bytes) -> bool:
        written.append(data)
        return True

    async def unused(_message: Message) -> None:
        raise AssertionError("everything could be written at once")

    async def run() -> None:
        with closing(_writer(written, unused, write_now)):
            while not written:
                await asyncio.sleep(0.005)
        num_written = len(written)
        await asyncio.sleep(0.06)
        assert len(written) == num_written

    asyncio.run(run())
    assert set(written) == {b": beat\n\n"}


async def _stays() -> Message:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


async def _leaves() -> Message:
    await asyncio.sleep(0)
    return {"type": "http.disconnect"}


def test_a_client_that_leaves_cancels_the_work() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("work")

    async def run() -> None:
        with pytest.raises(ClientLeftError):
            await while_connected(_leaves, work())
        await asyncio.sleep(0)  # not cancelled any more

    asyncio.run(run())
    assert ended == ["work"]


def test_being_cancelled_is_not_a_client_that_leaves() -> None:
    async def run() -> None:
        forever = asyncio.get_running_loop().create_future()

        async def work() -> None:
            await forever

        task = asyncio.ensure_future(while_connected(_stays, work()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())


def test_work_that_ends_is_given_back() -> None:
    async def work() -> str:
        await asyncio.sleep(0)
        return "done"

    async def run() -> str:
        return await while_connected(_stays, work())

    assert asyncio.run(run()) == "done"


def test_who_leaves_as_the_work_ends_cancels_nothing_that_follows() -> None:
    async def run() -> str:
        left: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        async def receive() -> Message:
            return await left

        async def work() -> str:
            await asyncio.sleep(0)
            left.set_result({"type": "http.disconnect"})
            await asyncio.sleep(0)  # the watcher ends now, and its callback is due
            return "done"

        result = await while_connected(receive, work())
        for _ in range(3):
            await asyncio.sleep(0)
        return result

    assert asyncio.run(run()) == "done"
