"""The engine in a process of its own: the same answers, and every way in which the process can end."""

import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_fixtures import TIMEOUT_S, Receiver, generate, scripted_config, wait_until
from scripted_child import BREAKS, HANGS, LATE, NAN, PROGRAM, SLOW

from freehold.config import EngineConfig
from freehold.engine import remote, watch
from freehold.engine.client import Engine
from freehold.engine.ipc import Beat, Channel, FromEngine, Ready, Start
from freehold.engine.ledger import Ledger
from freehold.engine.process import EXIT_FAILED
from freehold.engine.remote import ProcessEngine
from freehold.errors import EngineError, RequestError, ResourceError, UserError
from freehold.protocol import Abort, Drain, RequestId

STALL_S = 5.0
"""A stalled engine is not ready after so long, at most."""

HERE = Path(__file__).parent


def start(**settings: Any) -> ProcessEngine:
    return ProcessEngine.start(scripted_config(**settings), program=PROGRAM)


@pytest.fixture
def engine() -> Iterator[ProcessEngine]:
    engine = start()
    yield engine
    engine.shutdown()
    engine.ledger().check(0)


def submit(engine: ProcessEngine, name: str, prompt: tuple[int, ...], **sampling: Any) -> Receiver:
    receiver = Receiver()
    engine.submit(generate(name, prompt, **sampling), receiver)
    return receiver


def pid_of(engine: ProcessEngine) -> int:
    assert engine.pid is not None
    return engine.pid


def is_running(pid: int) -> bool:
    """Zombies don't count: whoever inherits them may be slow to bury them."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def works(engine: ProcessEngine) -> None:
    """Comes back by itself, and answers."""
    wait_until(lambda: engine.health().ok)
    receiver = submit(engine, "next", (5, 6, 7), max_tokens=5)
    assert receiver.wait().reason == "length"
    assert receiver.token_ids == [5, 6, 7, 5, 6]


# ---------------------------------------------------------------------- the same as in a thread


def test_the_same_answers_and_the_same_fingerprint_as_in_a_thread(engine: ProcessEngine) -> None:
    with Engine.start(scripted_config()) as thread:
        assert engine.info.fingerprint == thread.info.fingerprint
        assert (engine.info.num_blocks, engine.info.max_model_len) == (
            thread.info.num_blocks,
            thread.info.max_model_len,
        )
        answers = []
        for side in (engine, thread):
            receivers = [Receiver() for _ in range(20)]
            for i, receiver in enumerate(receivers):
                side.submit(generate(str(i), (*range(i + 1), 7), max_tokens=30 + i, digests=True), receiver)
            ends = [receiver.wait() for receiver in receivers]
            answers.append(([(r.token_ids, r.digests) for r in receivers], ends))
            side.ledger().check(0)
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "code"),
    [((), 1, "empty_prompt"), ((5,), 0, "invalid_value"), ((5, 1 << 16), 1, "token_id_out_of_range")],
)
def test_refusals(engine: ProcessEngine, prompt: tuple[int, ...], max_tokens: int, code: str) -> None:
    with pytest.raises(RequestError) as refusal:
        submit(engine, "a", prompt, max_tokens=max_tokens)
    assert refusal.value.code == code
    assert engine.ledger() == Ledger(received=1, refused=1)


def test_an_abort_ends_a_request(engine: ProcessEngine) -> None:
    receiver = submit(engine, "a", (SLOW,), max_tokens=4000)
    assert receiver.first.wait(TIMEOUT_S)
    engine.abort(RequestId("a"))
    assert receiver.wait().reason == "cancelled"
    assert len(receiver.token_ids) < 1000
    works(engine)


def test_a_request_that_fails_fails_alone(engine: ProcessEngine) -> None:
    bad, good = submit(engine, "bad", (NAN,), max_tokens=9), submit(engine, "good", (9,), max_tokens=9)
    assert bad.wait().code == "numeric_error"
    assert good.wait().reason == "length"
    assert engine.health().ok


def bad_files(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "missing", {"model_path": folder / "missing.gguf"}
    (folder / "junk.gguf").write_bytes(b"junk" * 100)
    yield "junk", {"model_path": folder / "junk.gguf"}
    (folder / "bert").mkdir()
    (folder / "bert" / "config.json").write_text('{"architectures": ["BertModel"], "model_type": "bert"}')
    yield "unsupported", {"model_path": folder / "bert"}


def test_what_can_t_be_loaded_is_the_same_error_as_in_a_thread(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cases = [
        *(EngineConfig(backend="reference", **fields) for _, fields in bad_files(tmp_path)),
        scripted_config(kv_cache_bytes=1),
        scripted_config(block_size=3),
        scripted_config(max_model_len=1 << 20),
        scripted_config(memory_limit_bytes=1 << 20),
    ]
    for config in cases:
        with pytest.raises(UserError) as here:
            Engine.start(config)
        with pytest.raises(UserError) as there:
            ProcessEngine.start(config)
        assert (type(there.value), str(there.value)) == (type(here.value), str(here.value))
    assert capfd.readouterr().err == ""


# ---------------------------------------------------------------------- death


def queued(engine: ProcessEngine) -> list[Receiver]:
    """More requests than run at once, some of them begun."""
    receivers = [submit(engine, str(i), (SLOW, i), max_tokens=4000) for i in range(100)]
    assert receivers[0].first.wait(TIMEOUT_S)
    return receivers


def prefilling(engine: ProcessEngine) -> list[Receiver]:
    return [submit(engine, str(i), (LATE, *range(4000)), max_tokens=20) for i in range(3)]


def decoding(engine: ProcessEngine) -> list[Receiver]:
    receivers = [submit(engine, str(i), (SLOW, i), max_tokens=4000) for i in range(20)]
    for receiver in receivers:
        assert receiver.first.wait(TIMEOUT_S)
    return receivers


def aborting(engine: ProcessEngine) -> list[Receiver]:
    receivers = decoding(engine)
    os.kill(pid_of(engine), signal.SIGSTOP)
    for i in range(20):
        engine.abort(RequestId(str(i)))
    return receivers


def hanging(engine: ProcessEngine) -> list[Receiver]:
    receiver = submit(engine, "a", (HANGS,), max_tokens=4)
    time.sleep(0.2)
    return [receiver]


def idle(engine: ProcessEngine) -> list[Receiver]:
    return []


@pytest.mark.parametrize(
    ("state", "number"),
    [
        *((s, signal.SIGKILL) for s in (idle, queued, prefilling, decoding, aborting, hanging)),
        (decoding, signal.SIGSEGV),
    ],
)
def test_killed_in_any_state(
    engine: ProcessEngine, state: Callable[[ProcessEngine], list[Receiver]], number: signal.Signals
) -> None:
    fingerprint, first = engine.info.fingerprint, pid_of(engine)
    receivers = state(engine)
    started_s = time.monotonic()
    os.kill(first, number)
    os.kill(first, signal.SIGCONT)
    for receiver in receivers:
        finish = receiver.wait()
        assert (finish.reason, finish.code) == ("failed", "engine_died")
        assert finish.num_output_tokens == len(receiver.token_ids)
    assert time.monotonic() - started_s < 10
    wait_until(lambda: engine.pid not in {None, first})
    works(engine)
    assert engine.info.fingerprint == fingerprint
    assert not is_running(first)
    num, num_ids = len(receivers), 5 + sum(len(receiver.token_ids) for receiver in receivers)
    assert engine.ledger() == Ledger(
        received=num + 1, accepted=num + 1, finished=1, failed=num, published_ids=num_ids, ended_ids=num_ids
    )


def test_requests_that_come_while_it_starts_again_are_refused(engine: ProcessEngine) -> None:
    os.kill(pid_of(engine), signal.SIGKILL)
    wait_until(lambda: engine.pid is None)
    with pytest.raises(EngineError, match=r"has ended|SIGKILL") as refusal:
        submit(engine, "a", (5,), max_tokens=1)
    assert refusal.value.code == "engine_restarting"
    works(engine)
    assert engine.ledger() == Ledger(received=2, refused=1, accepted=1, finished=1, published_ids=5, ended_ids=5)


def test_a_backend_that_breaks_is_replaced(engine: ProcessEngine) -> None:
    bad, other = submit(engine, "bad", (BREAKS,), max_tokens=9), submit(engine, "other", (SLOW,), max_tokens=4000)
    for receiver in (bad, other):
        finish = receiver.wait()
        assert (finish.reason, finish.code) == ("failed", "engine_failed")
        assert "device lost" not in (finish.message or ""), "what is inside stays inside"
    works(engine)


def test_it_gives_up_in_the_end(engine: ProcessEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "MAX_DEATHS", 3)
    for _ in range(3):
        wait_until(lambda: engine.health().ok)
        assert submit(engine, "a", (BREAKS,), max_tokens=9).wait().code == "engine_failed"
    wait_until(lambda: bool(engine.fault))
    assert "ended 3 times in a row" in engine.fault
    assert "device lost" in engine.fault
    assert not engine.health().ok
    with pytest.raises(EngineError) as refusal:
        submit(engine, "a", (5,), max_tokens=9)
    assert refusal.value.code == "engine_stopped"


def test_an_engine_that_is_of_use_is_started_again_however_often_it_dies(
    engine: ProcessEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "MAX_DEATHS", 2)
    for _ in range(4):
        works(engine)
        os.kill(pid_of(engine), signal.SIGKILL)
        wait_until(lambda: engine.pid is None)
    works(engine)
    assert engine.ledger().finished == 5


def storm(seed: int, num_kills: int) -> None:
    """Requests from two threads, some aborted, while the process is stopped for a moment or killed, again and again."""
    engine, receivers, refused, is_over = start(max_num_seqs=8), list[Receiver](), list[str](), threading.Event()

    def submit_all(first: int) -> None:
        source = random.Random(seed + first)
        for i in itertools.count(first, 2):
            if is_over.is_set():
                return
            try:
                receivers.append(
                    submit(engine, str(i), (source.choice((SLOW, 5)), i % 100), max_tokens=source.randint(1, 9))
                )
            except EngineError as error:
                refused.append(error.code)
                time.sleep(0.05)
            if source.random() < 0.3:
                engine.abort(RequestId(str(i)))
            time.sleep(source.random() * 0.01)

    threads = [threading.Thread(target=submit_all, args=(first,)) for first in (0, 1)]
    for thread in threads:
        thread.start()
    source = random.Random(seed)
    for _ in range(num_kills):
        wait_until(lambda: engine.health().ok)
        time.sleep(source.random() * 0.5)
        pid = pid_of(engine)
        if source.random() < 0.3:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(source.random() * 0.3)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda pid=pid: engine.pid != pid)  # type: ignore[misc]
    is_over.set()
    for thread in threads:
        thread.join(TIMEOUT_S)
    works(engine)
    engine.shutdown(TIMEOUT_S)
    codes = [receiver.wait().code for receiver in receivers]
    ledger = engine.ledger()
    ledger.check(0)
    assert set(codes) <= {None, "engine_died"}
    assert set(refused) <= {"engine_restarting"}
    assert (ledger.accepted, ledger.refused) == (len(receivers) + 1, len(refused))
    assert ledger.failed == codes.count("engine_died")
    assert ledger.finished > 1


def test_a_storm_of_kills_loses_nothing() -> None:
    storm(1, 6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_fifty_kills_lose_nothing(seed: int) -> None:
    storm(seed, 10)


def test_other_files_after_a_restart_are_not_served(tmp_path: Path) -> None:
    """A stand-in that reports another fingerprint each time it starts."""
    engine = ProcessEngine.start(scripted_config(), program=stand_in("fickle"))
    os.kill(pid_of(engine), signal.SIGKILL)
    wait_until(lambda: bool(engine.fault))
    assert "changed while it was served" in engine.fault
    engine.shutdown()


@pytest.mark.parametrize("what", ["dies", "says_junk", "says_too_much", "isn_t_there"])
def test_a_process_that_never_loads_is_an_error(what: str) -> None:
    program = ["/nowhere/python"] if what == "isn_t_there" else stand_in(what)
    with pytest.raises(ResourceError, match=r"exit code 3|can't be read|can't be started"):
        ProcessEngine.start(scripted_config(), program=program)


def stand_in(what: str) -> list[str]:
    return [sys.executable, "-P", str(HERE / "false_child.py"), what]


# ---------------------------------------------------------------------- silence and stalls


def test_a_stopped_process_is_seen_ended_and_replaced(engine: ProcessEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "DEAD_S", 5.0)
    first = pid_of(engine)
    receiver = submit(engine, "a", (SLOW,), max_tokens=4000)
    assert receiver.first.wait(TIMEOUT_S)
    os.kill(first, signal.SIGSTOP)
    started_s = time.monotonic()
    wait_until(lambda: not engine.health().ok)
    assert time.monotonic() - started_s < STALL_S
    assert "said nothing" in engine.health().reason
    assert receiver.wait().code == "engine_died"
    wait_until(lambda: not is_running(first))
    works(engine)


def test_a_process_that_goes_on_in_time_is_kept(engine: ProcessEngine) -> None:
    first = pid_of(engine)
    receiver = submit(engine, "a", (SLOW,), max_tokens=100)
    assert receiver.first.wait(TIMEOUT_S)
    os.kill(first, signal.SIGSTOP)
    wait_until(lambda: not engine.health().ok)
    os.kill(first, signal.SIGCONT)
    wait_until(lambda: engine.health().ok)
    assert receiver.wait().reason == "length"
    assert receiver.token_ids == list(range(100))
    assert engine.pid == first


def test_a_hanging_backend_is_seen_ended_and_replaced() -> None:
    with start(stall_timeout_s=5) as engine:
        receiver = submit(engine, "a", (HANGS,), max_tokens=4)
        started_s = time.monotonic()
        wait_until(lambda: not engine.health().ok)
        assert time.monotonic() - started_s < STALL_S
        assert "finished no step" in engine.health().reason
        assert receiver.wait().code == "engine_died"
        works(engine)


def test_what_a_stopped_process_doesn_t_take_is_bounded(engine: ProcessEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "MAX_PENDING_BYTES", 1 << 20)
    os.kill(pid_of(engine), signal.SIGSTOP)
    receivers: list[Receiver] = []
    refusal: EngineError | None = None
    while refusal is None and len(receivers) < 1000:
        try:
            receivers.append(submit(engine, str(len(receivers)), tuple(range(6000)), max_tokens=1))
        except EngineError as error:
            refusal = error
    assert refusal is not None
    assert refusal.code == "engine_busy"
    assert len(receivers) > 20
    os.kill(pid_of(engine), signal.SIGCONT)
    for receiver in receivers:
        assert receiver.wait().reason == "length"
    works(engine)


# ---------------------------------------------------------------------- shutdown


def test_shutdown_lets_requests_finish(engine: ProcessEngine) -> None:
    pid, receiver = pid_of(engine), submit(engine, "a", (SLOW,), max_tokens=20)
    os.kill(pid, signal.SIGINT)  # Ctrl-C reaches every process of a group; the engine's end is up to the server
    os.kill(pid, signal.SIGTERM)
    engine.shutdown(deadline_s=TIMEOUT_S)
    assert receiver.wait().reason == "length"
    assert not is_running(pid)
    assert engine.health().reason == "the engine has stopped"
    with pytest.raises(EngineError):
        submit(engine, "b", (5,), max_tokens=20)


def test_shutdown_cancels_at_its_deadline_and_sooner_if_told_again(engine: ProcessEngine) -> None:
    receiver = submit(engine, "a", (SLOW,), max_tokens=4000)
    assert receiver.first.wait(TIMEOUT_S)
    patient = threading.Thread(target=engine.shutdown, args=(3600,))
    patient.start()
    wait_until(lambda: not engine.health().ok)
    with pytest.raises(EngineError) as refusal:
        submit(engine, "b", (5,), max_tokens=20)
    assert refusal.value.code == "engine_stopping"
    assert not receiver.ended.is_set()
    engine.shutdown(deadline_s=0.1)
    assert receiver.wait().reason == "cancelled"
    patient.join(TIMEOUT_S)
    assert not patient.is_alive()


@pytest.mark.parametrize("is_stopped", [False, True])
def test_shutdown_of_an_engine_that_hangs(engine: ProcessEngine, is_stopped: bool) -> None:
    pid, receiver = pid_of(engine), submit(engine, "a", (HANGS,), max_tokens=4)
    assert receiver.first.wait(TIMEOUT_S)
    time.sleep(0.2)  # into the step that hangs
    if is_stopped:
        os.kill(pid, signal.SIGSTOP)
    engine.shutdown()
    assert receiver.wait().code == "engine_stalled"
    assert not is_running(pid)


def test_shutdown_of_an_engine_whose_steps_are_long(engine: ProcessEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no time to cancel its requests itself; that it was ended is no fault of its own."""
    monkeypatch.setattr(remote, "GRACE_S", 0.2)
    pid, receiver = pid_of(engine), submit(engine, "a", (LATE,), max_tokens=40)
    engine.shutdown()
    assert receiver.wait().reason == "cancelled"
    assert not is_running(pid)


def test_shutdown_while_loading_and_before() -> None:
    for begins in (False, True):
        engine = ProcessEngine(program=[*PROGRAM, "--slow-start"])
        if begins:
            engine.begin(scripted_config(), "info")
        started_s = time.monotonic()
        engine.shutdown()
        assert time.monotonic() - started_s < 10
        with pytest.raises(EngineError):
            engine.wait()


def test_shutdown_while_it_starts_again(engine: ProcessEngine) -> None:
    os.kill(pid_of(engine), signal.SIGKILL)
    wait_until(lambda: engine.pid is None)
    started_s = time.monotonic()
    engine.shutdown(deadline_s=TIMEOUT_S)
    assert time.monotonic() - started_s < TIMEOUT_S / 2


def test_an_impatient_shutdown_still_ends_the_process(engine: ProcessEngine) -> None:
    """Ctrl-C while waiting for requests to finish."""
    pid, receiver = pid_of(engine), submit(engine, "a", (SLOW,), max_tokens=4000)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        engine.shutdown(deadline_s=3600)
    timer.join()
    assert receiver.wait().reason == "cancelled"
    assert not is_running(pid)


def test_killed_while_draining(engine: ProcessEngine) -> None:
    receivers = decoding(engine)
    patient = threading.Thread(target=engine.shutdown, args=(3600,))
    patient.start()
    wait_until(lambda: not engine.health().ok)
    os.kill(pid_of(engine), signal.SIGKILL)
    for receiver in receivers:
        assert receiver.wait().code == "engine_died"
    patient.join(TIMEOUT_S)
    assert not patient.is_alive()


OWNER = """
import sys
sys.path.insert(0, sys.argv[1])
from engine_fixtures import scripted_config, generate
from scripted_child import PROGRAM, SLOW, HANGS
from freehold.engine.remote import ProcessEngine
engine = ProcessEngine.start(scripted_config(), program=PROGRAM)
engine.submit(generate("a", (HANGS if sys.argv[2] == "hanging" else SLOW,), max_tokens=4000), lambda event: None)
print(engine.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("state", "number"),
    [("busy", signal.SIGKILL), ("hanging", signal.SIGKILL), ("stopped", signal.SIGKILL), ("busy", signal.SIGTERM)],
)
def test_no_process_outlives_its_owner(state: str, number: signal.Signals) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(HERE), state], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdin is not None
    assert owner.stdout is not None
    with owner.stdin, owner.stdout:
        pid = int(owner.stdout.readline())
        assert is_running(pid)
        if state == "stopped":
            os.kill(pid, signal.SIGSTOP)
        owner.send_signal(number)
        owner.wait(TIMEOUT_S)
        ended_s = time.monotonic()
        wait_until(lambda: not is_running(pid))
        assert time.monotonic() - ended_s < 2


# ---------------------------------------------------------------------- the process by itself


class Alone:
    """The process, and a raw end of its connection."""

    def __init__(self) -> None:
        self.raw, theirs = socket.socketpair()
        with theirs:
            command = [*PROGRAM, str(theirs.fileno())]
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True)
        self.channel: Channel[FromEngine] = Channel(self.raw.dup(), FromEngine)

    def load(self) -> None:
        self.channel.send(Start(scripted_config(), "info"))
        while not any(isinstance(message, Ready) for message in self.channel.receive(TIMEOUT_S)):
            pass

    def end(self) -> int:
        """Wait for it; its exit code."""
        _, log = self.process.communicate(timeout=TIMEOUT_S)
        self.raw.close()
        self.channel.close()
        assert "Traceback" not in log
        return self.process.returncode


JUNK = [b"\xff" * 4, b"\0\0\0\1\xc1", b"GET / HTTP/1.1\r\n\r\n"]


@pytest.mark.parametrize(
    ("is_loaded", "sent"),
    [
        *((is_loaded, junk) for is_loaded in (False, True) for junk in JUNK),
        (False, Abort(RequestId("a"))),
        (False, Drain(1.0)),
        (True, Start(scripted_config(), "info")),
        (True, Beat(1.0, False, "plan")),
    ],
    ids=repr,
)
def test_junk_and_what_comes_out_of_turn_end_the_process(is_loaded: bool, sent: Any) -> None:
    alone = Alone()
    if is_loaded:
        alone.load()
    if isinstance(sent, bytes):
        alone.raw.sendall(sent)
    else:
        alone.channel.send(sent)
    assert alone.end() == EXIT_FAILED


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_lost_connection_ends_the_process(is_loaded: bool) -> None:
    alone = Alone()
    if is_loaded:
        alone.load()
        alone.channel.send(generate("a", (SLOW,), max_tokens=4000))
    alone.raw.shutdown(socket.SHUT_RDWR)
    assert alone.end() == 0
