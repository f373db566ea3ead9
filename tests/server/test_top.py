"""``freehold top``, as a person at a terminal has it, and as a script."""

import fcntl
import json
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import msgspec
import pytest
from tests import processes
from tests.server.running import TIMEOUT_S, Server, Start
from tests.server.test_live import live, until

from freehold.backends.script import Gate
from freehold.cli.screen import text_of
from freehold.cli.top import top
from freehold.cli.top_frame import Past, bars, duration, frame
from freehold.errors import RequestError, ResourceError
from freehold.serve.live.schema import LiveAnswer


def lines_of(answer: LiveAnswer, width: int, height: int, *, plain: bool = False, trouble: str = "") -> list[str]:
    past = Past()
    past.add(answer)
    return [text_of(line, width) for line in frame(answer, past, width, height, plain=plain, trouble=trouble)]


def answer_of(server: Server) -> LiveAnswer:
    return msgspec.json.decode(server.http.get("/debug/live").content, type=LiveAnswer)


@pytest.fixture(scope="module")
def busy(shared_server: Server) -> LiveAnswer:
    """One request has ended and one runs."""
    gate = Gate(Event())
    shared_server.says("ok")
    assert shared_server.complete().status_code == 200
    shared_server.says("so", gate, "slow")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(shared_server.complete)
        until(shared_server, lambda found: [line["stage"] for line in found["requests"]["live"]] == ["answering"])
        found = answer_of(shared_server)
        gate.event.set()
        assert running.result().status_code == 200
    return found


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("height", [24, 36, 60])
@pytest.mark.parametrize("plain", [False, True])
def test_a_frame_fits_its_terminal(busy: LiveAnswer, width: int, height: int, plain: bool) -> None:
    """With the longest sentence, too."""
    sentence = "queueing: " + "all rows are taken " * 12
    long = msgspec.structs.replace(busy, binding=msgspec.structs.replace(busy.binding, sentence=sentence))
    lines = lines_of(long, width, height, plain=plain)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "answering" in text
    assert re.search(r"running +\d of 64", text)
    if plain:
        assert text.isascii()


def test_old_numbers_are_marked_as_old(busy: LiveAnswer) -> None:
    assert "these numbers are old: no server answers" in "\n".join(lines_of(busy, 80, 24, trouble="no server answers"))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.0, "0 us"), (0.00085, "850 us"), (0.012, "12 ms"), (1.0, "1 s"), (1.25, "1.2 s"),
     (90, "1.5 min"), (9000, "2.5 h")],
)  # fmt: skip
def test_durations_are_short(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_of_a_long_id_the_end_is_shown(busy: LiveAnswer) -> None:
    lines = [msgspec.structs.replace(busy.requests.live[0], id=f"bench-1-1-0-{number}") for number in (104, 105)]
    many = msgspec.structs.replace(busy, requests=msgspec.structs.replace(busy.requests, live=lines))
    for width, plain, ids in ((80, False, ["…h-1-1-0-104", "…h-1-1-0-105"]), (80, True, ["~h-1-1-0-104"]),
                              (100, True, ["bench-1-1-0-104 ", "bench-1-1-0-105 "])):  # fmt: skip
        text = "\n".join(lines_of(many, width, 24, plain=plain))
        assert all(text.count(id) == 1 for id in ids), text


def test_bars_show_the_newest_and_whatever_is_not_nothing() -> None:
    assert bars([9.0, 0.0, 0.001, 4.0, 8.0], 4, plain=False) == " ▁▄█"
    assert bars([0.0, 0.0], 4, plain=False) == "  "
    assert bars([], 4, plain=True) == ""


def run(*arguments: str) -> None:
    top.main(arguments, standalone_mode=False)


def test_one_frame_for_a_file(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    server = start()
    run("--url", server.url, "--once")
    out = capsys.readouterr().out
    assert "idle: nothing runs and nothing waits" in out
    assert "\x1b" not in out


def test_json_is_what_the_server_answers(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    server = start()
    run("--url", server.url, "--json")
    assert json.loads(capsys.readouterr().out).keys() == live(server).keys()


def test_without_a_server_it_says_so(free_port: int) -> None:
    with pytest.raises(ResourceError, match=rf"no server answers at http://127.0.0.1:{free_port}: Connection refused"):
        run("--url", f"http://127.0.0.1:{free_port}", "--once")


def test_a_key_is_needed_and_sent(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    server = start(api_keys=("a-secret-of-mine",))
    with pytest.raises(RequestError, match=r"answered 401: .* \(put it into FREEHOLD_API_KEY\)"):
        run("--url", server.url, "--once")
    run("--url", server.url, "--api-key", "a-secret-of-mine", "--once")
    assert "idle" in capsys.readouterr().out


def test_what_is_no_live_answer_is_refused(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another server, or another version."""
    monkeypatch.setattr("freehold.cli.top._fetch", lambda *_: b'{"object": "list"}')
    with pytest.raises(ResourceError, match="which this version can't read"):
        run("--url", "http://127.0.0.1:1", "--once")


@pytest.mark.parametrize("width", range(36, 80, 4))
def test_in_a_narrow_terminal_columns_are_left_out_and_no_number_is_cut(busy: LiveAnswer, width: int) -> None:
    one = msgspec.structs.replace(
        busy.requests.live[0], at=busy.now.at - 0.5, first_token_s=0.25, num_prompt_tokens=12345, num_output_tokens=678
    )
    stages = ("answering", "prefilling")
    lines = [msgspec.structs.replace(one, stage=stage, num_computed_tokens=5678) for stage in stages]
    few = msgspec.structs.replace(busy, requests=msgspec.structs.replace(busy.requests, live=lines, ended=[]))
    shown = lines_of(few, width, 24)
    assert max(map(len, shown)) <= width
    text = "\n".join(shown)
    assert "prefill 46%" in text
    numbers = [number for line in shown[-2:] for number in line.split()]
    assert ("12345" in numbers) == (width >= 64)
    assert ("678" in numbers) == (width >= 44)
    assert not {"1", "12", "123", "1234", "6", "67"} & set(numbers)
    assert re.search(r"^running +\d of 64", text, re.MULTILINE)


def test_colours_alone_make_no_terminal(
    start: Start, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is given one frame, and doesn't wait for more, though colours are wanted there."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    run("--url", start().url)
    assert "idle: nothing runs" in capsys.readouterr().out


def take_terminal() -> None:
    """In the child: Ctrl-C on the terminal reaches it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_at_a_terminal_it_goes_on_until_ctrl_c(start: Start, free_port: int) -> None:
    """What is new is shown without a key pressed, also when the server has gone and come again; at the end, the screen
    is given back. Without colours where they aren't wanted."""
    server = start(port=free_port)
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "freehold", "top", "--url", server.url]
    with os.fdopen(main, "r+b", buffering=0) as screen:
        process = processes.start(
            command, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"},
            preexec_fn=take_terminal,  # one system call
        )  # fmt: skip
        os.close(terminal)
        seen, end_s = b"", time.monotonic() + TIMEOUT_S
        all_seen = bytearray()

        def read_until(part: bytes) -> None:
            nonlocal seen
            while part not in seen:
                assert select.select([screen], [], [], max(0.0, end_s - time.monotonic()))[0], seen
                new = screen.read(4096)
                seen += new
                all_seen.extend(new)
            seen = seen.partition(part)[2]

        read_until(b"idle: nothing runs")
        assert server.complete().status_code == 200
        read_until(b"length")  # how it ended
        server.stop()
        read_until(b"these numbers are old: no server answers")
        start(port=free_port, served_model_name="another")
        read_until(b"another")
        assert not re.search(rb"\x1b\[[0-9;]*3[0-7][;m]", all_seen)
        screen.write(b"\x03")
        read_until(b"\x1b[?1049l")
        assert process.wait(TIMEOUT_S) == 0
