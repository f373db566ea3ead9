"""Requests with grammars in the engine: held back until theirs is compiled, and then like any other."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest
from engine_fixtures import TIMEOUT_S, Receiver, generate, scripted_config, wait_until
from process_fixtures import pid_of, works

from freehold.engine import grammars as grammars_module
from freehold.engine.client import Engine
from freehold.engine.handle import EngineHandle
from freehold.engine.remote import ProcessEngine
from freehold.errors import RequestError
from freehold.grammar.factory import MatcherFactory
from freehold.grammar.messages import Source
from freehold.protocol import Generate, Grammar, RequestId, TokenTexts

END_ID = 256
TEXTS = TokenTexts((*(bytes([byte]) for byte in range(256)), b"<end>"), (END_ID,))


def regex(pattern: str) -> Grammar:
    return Grammar(source=msgspec.msgpack.encode(Source(f"start: T\nT: /{pattern}/")))


ABC = regex("abc")


def request(name: str, grammar: Grammar = ABC, *, choice: int = 0, max_tokens: int = 20) -> Generate:
    plain = generate(name, (97, 120), max_tokens=max_tokens, stop_ids=frozenset({END_ID}), choice=choice)
    return msgspec.structs.replace(plain, grammar=grammar)


def submit(engine: EngineHandle, name: str, grammar: Grammar = ABC, **given: int) -> Receiver:
    receiver = Receiver()
    engine.submit(request(name, grammar, **given), receiver)
    return receiver


@pytest.fixture
def taught(scripted_engine: Engine) -> Engine:
    scripted_engine.teach(TEXTS)
    return scripted_engine


class Gate:
    """Compiling stops at it while it is shut."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.sources: list[bytes] = []


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    compile_it: Callable[..., object] = MatcherFactory.compile

    def slowly(self: MatcherFactory, source: bytes) -> object:
        gate.sources.append(source)
        assert gate.open.wait(TIMEOUT_S)
        return compile_it(self, source)

    monkeypatch.setattr(MatcherFactory, "compile", slowly)
    yield gate
    gate.open.set()


def test_an_answer_is_what_its_grammar_says(taught: Engine) -> None:
    receiver = submit(taught, "a")
    finish = receiver.wait()
    assert (finish.reason, finish.stop_id) == ("stop", END_ID)
    assert bytes(receiver.token_ids[:-1]) == b"abc"
    assert submit(taught, "b", max_tokens=2).wait().reason == "length"


def test_others_go_on_while_a_grammar_is_compiled(taught: Engine, gate: Gate) -> None:
    held = submit(taught, "held")
    for index in range(3):
        other = Receiver()
        taught.submit(generate(f"other {index}", (5, 6), max_tokens=30), other)
        assert other.wait().reason == "length"
    assert not held.first.is_set()
    gate.open.set()
    assert held.wait().reason == "stop"


def test_equal_grammars_are_compiled_once(taught: Engine, gate: Gate) -> None:
    early = [submit(taught, f"early {index}", choice=index) for index in range(5)]
    wait_until(lambda: len(gate.sources) == 1)
    gate.open.set()
    late = [submit(taught, f"late {index}", choice=index) for index in range(5)]
    assert {receiver.wait().reason for receiver in early + late} == {"stop"}
    assert gate.sources == [ABC.source]


def test_compiled_grammars_are_kept_up_to_a_number(taught: Engine, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammars_module, "MAX_KEPT", 2)
    gate.open.set()
    for turn, pattern in enumerate(["a", "b", "a", "c", "a", "b"]):
        assert submit(taught, str(turn), regex(pattern)).wait().reason == "stop"
    assert gate.sources == [regex(pattern).source for pattern in "abcb"]


def test_a_request_may_end_while_its_grammar_is_compiled(taught: Engine, gate: Gate) -> None:
    """ab-03."""
    aborted = submit(taught, "aborted")
    overdue = Receiver()
    taught.submit(msgspec.structs.replace(request("overdue"), deadline_s=0.01), overdue)
    kept = submit(taught, "kept")
    taught.abort(RequestId("aborted"))
    assert aborted.wait().reason == "cancelled"
    again = submit(taught, "aborted")
    time.sleep(0.02)  # past the deadline
    gate.open.set()
    assert overdue.wait().code == "deadline_exceeded"
    assert kept.wait().reason == again.wait().reason == "stop"


def test_a_shutdown_ends_what_is_held(gate: Gate) -> None:
    engine = Engine.start(scripted_config(max_model_len=200))
    engine.teach(TEXTS)
    held = submit(engine, "held")
    wait_until(lambda: bool(gate.sources))
    engine.shutdown()
    assert held.wait().reason == "cancelled"
    engine.ledger().check(0)


@pytest.mark.parametrize("source", [b"", b"\xc1", msgspec.msgpack.encode(Source("nonsense"))])
def test_a_source_that_is_no_grammar_fails_its_request_alone(taught: Engine, source: bytes) -> None:
    other = Receiver()
    taught.submit(generate("other", (5, 6), max_tokens=30), other)
    finish = submit(taught, "bad", Grammar(source=source)).wait()
    assert (finish.reason, finish.code) == ("failed", "grammar_failed")
    assert other.wait().reason == "length"
    assert submit(taught, "good").wait().reason == "stop"


def test_a_grammar_that_gets_too_complex_fails_its_request_alone(taught: Engine) -> None:
    text = "start: s\ns: s s s | s s | /[a-z]/ |"
    ambiguous = Grammar(source=msgspec.msgpack.encode(Source(text, is_ambiguous=True)))
    other = Receiver()
    taught.submit(generate("other", (5, 6), max_tokens=100), other)
    finish = submit(taught, "bad", ambiguous, max_tokens=150).wait()
    assert (finish.reason, finish.code) == ("failed", "grammar_too_complex")
    assert other.wait().reason == "length"


def test_grammar_and_allowed_ids_hold_together(taught: Engine) -> None:
    receiver = Receiver()
    both = request("both", regex("[a-z]{3}"))
    sampling = msgspec.structs.replace(both.sampling, allowed_ids=(100, 101, END_ID))
    taught.submit(msgspec.structs.replace(both, sampling=sampling), receiver)
    assert receiver.wait().reason == "stop"
    assert receiver.token_ids == [100, 100, 100, END_ID]


def test_what_cannot_be_followed_is_refused(scripted_engine: Engine) -> None:
    with pytest.raises(RequestError, match="teach"):
        submit(scripted_engine, "a")
    scripted_engine.teach(TEXTS)
    endless = msgspec.structs.replace(generate("b", (5,)), grammar=ABC)
    with pytest.raises(RequestError, match="ends the answer"):
        scripted_engine.submit(endless, Receiver())
    for wrong in ({"after_id": 65536}, {"after_id": -1}, {"after_id": 3, "max_free": -1}):
        with pytest.raises(RequestError):
            submit(scripted_engine, "c", msgspec.structs.replace(ABC, **wrong))


def test_a_new_process_is_taught_again(engine: ProcessEngine) -> None:
    engine.teach(TEXTS)
    assert submit(engine, "before").wait().reason == "stop"
    for _ in range(2):
        os.kill(pid_of(engine), signal.SIGKILL)
        wait_until(lambda: not engine.health().ok)
        works(engine)
        receiver = submit(engine, "after")
        assert receiver.wait().reason == "stop"
        assert bytes(receiver.token_ids[:-1]) == b"abc"
