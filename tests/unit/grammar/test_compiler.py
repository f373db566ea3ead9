"""Constraints are compiled in processes that can be ended, and what came of it is kept."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np
import pytest
from byte_grammars import TEXTS, Accepts, Fresh, follows

from freehold.errors import GrammarError, RequestError, ResourceError
from freehold.grammar.compiler import GrammarCompiler
from freehold.grammar.constraint import Choice, Constraint, Envelope, JsonObject, JsonSchema, Lark, Regex, SchemaRule
from freehold.grammar.factory import MatcherFactory
from freehold.grammar.messages import CompileLimits, Source
from freehold.protocol import Grammar, Sampling, TokenTexts
from freehold.workers.process import Worker

SLOW = Choice([f"{index * 7919 % 20011} {index}" for index in range(20_000)])
"""Takes 0.1 s or more."""


class Taught:
    """What an engine was told, and when it was asked for."""

    def __init__(self) -> None:
        self.calls: list[TokenTexts] = []


@pytest.fixture
def taught() -> Taught:
    return Taught()


@pytest.fixture
def compiler(taught: Taught) -> Iterator[GrammarCompiler]:
    compiler = GrammarCompiler(lambda: TEXTS, taught.calls.append)
    yield compiler
    compiler.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[GrammarCompiler]:
    """For tests that need nothing special of it."""
    compiler = GrammarCompiler(lambda: TEXTS, lambda _texts: None)
    yield compiler
    compiler.close()


def refusal(compiler: GrammarCompiler, constraint: Constraint) -> RequestError:
    with pytest.raises(RequestError) as caught:
        compiler.compile(constraint, param="p")
    return caught.value


def running(compiler: GrammarCompiler) -> list[Any]:
    return [worker.process for worker in compiler._idle.queue if worker.is_alive]


@pytest.mark.parametrize(
    "constraint",
    [JsonObject(), JsonSchema({"type": "null"}), JsonSchema(True), Regex("a/b"), Choice(["", "x"]), Lark('start: "x"')],
)
def test_every_kind_compiles_to_what_an_engine_takes(
    shared: GrammarCompiler, factory: MatcherFactory, constraint: Constraint
) -> None:
    grammar = shared.compile(constraint, param="p", after_id=3, max_free=7)
    assert (grammar.after_id, grammar.max_free) == (3, 7)
    factory.compile(grammar.source)


def test_the_engine_is_taught_before_the_first_grammar(compiler: GrammarCompiler, taught: Taught) -> None:
    assert not taught.calls
    compiler.compile(JsonObject(), param="p")
    compiler.compile(Regex("a"), param="p")
    assert taught.calls == [TEXTS]


def test_verdicts_are_kept(compiler: GrammarCompiler) -> None:
    grammar = compiler.compile(SLOW, param="p")
    refused = refusal(compiler, Regex("("))
    compiler.close()
    assert compiler.compile(Choice(list(SLOW.options)), param="p") == grammar
    again = refusal(compiler, Regex("("))
    assert (str(again), again.code) == (str(refused), refused.code)
    assert not running(compiler), "nothing was compiled again"


def test_what_is_kept_is_bounded(compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freehold.grammar.compiler.MAX_KEPT", 3)
    for index in range(6):
        compiler.compile(Regex(f"a{index}"), param="p")
    assert len(compiler._kept) == 3
    monkeypatch.setattr("freehold.grammar.compiler.MAX_KEPT_BYTES", 200)
    compiler.compile(Regex("b"), param="p")
    assert compiler._kept_bytes == sum(len(key) + len(verdict.source) for key, verdict in compiler._kept.items()) <= 200


@pytest.mark.parametrize("limits", [CompileLimits(cpu_s=0.02), CompileLimits(memory_bytes=1 << 20)])
def test_what_takes_too_much_is_refused_and_others_go_on(limits: CompileLimits) -> None:
    """T4, op-02."""
    compiler = GrammarCompiler(lambda: TEXTS, lambda _texts: None, limits)
    try:
        compiler.compile(Regex("a"), param="p")
        error = refusal(compiler, SLOW)
        assert (error.code, error.param) == ("grammar_budget", "p")
        assert compiler.compile(Regex("b"), param="p").source
    finally:
        compiler.close()


def test_a_worker_that_died_is_replaced(compiler: GrammarCompiler) -> None:
    compiler.compile(Regex("a"), param="p")
    [process] = running(compiler)
    process.kill()
    process.wait()
    assert compiler.compile(Regex("b"), param="p").source
    assert process not in running(compiler)


def test_one_that_takes_long_does_not_hold_up_the_other(compiler: GrammarCompiler) -> None:
    compiler.compile(Regex("a"), param="p")
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(compiler.compile, SLOW, param="p")
        while compiler._idle.qsize() == 2:
            time.sleep(0.001)
        assert compiler.compile(Regex("b"), param="p").source
        assert slow.result().source


def test_a_constraint_that_is_no_data_is_refused(shared: GrammarCompiler) -> None:
    cycle: dict[str, Any] = {}
    cycle["items"] = cycle
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"items": deep}
    for schema in (cycle, deep, {"const": 10**30}, {"const": "\ud800"}, {"const": object()}):
        assert refusal(shared, JsonSchema(schema)).param == "p"


def test_a_schema_of_a_rule_is_refused_by_its_own_field(shared: GrammarCompiler, factory: MatcherFactory) -> None:
    text = 'start: "<" args ">"'
    rule = SchemaRule("args", {"properties": {"a": {"not": {}}}}, "tools[0].function.parameters")
    assert refusal(shared, Lark(text, [rule])).param == "tools[0].function.parameters.properties.a.not"
    good = SchemaRule("args", {"type": "object", "properties": {"a": {"type": "integer"}}})
    source = msgspec.msgpack.decode(shared.compile(Lark(text, [good], True), param="p").source, type=Source)
    assert not source.is_ambiguous
    assert "rule 'Args'" in str(refusal(shared, Lark(text, [SchemaRule("Args", {})])))


def test_a_schema_in_an_envelope_keeps_its_references(shared: GrammarCompiler, accepts: Accepts) -> None:
    """A list of itself, as the value of one key of an object."""
    schema = {"$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}
    calls = Lark("start: call", [SchemaRule("call", schema, "p", Envelope({"name": "f"}, "args"))], True)
    assert accepts(calls, '{"name": "f", "args": [[], [[]]]}')
    for wrong in ('{"name": "g", "args": []}', '{"name": "f", "args": [1]}', '{"args": [], "name": "f"}', "[[]]"):
        assert not accepts(calls, wrong)
    refused = SchemaRule("call", {"properties": {"a": {"not": {}}}}, "p", Envelope({"name": "f"}, "args"))
    assert refusal(shared, Lark("start: call", [refused])).param == "p.properties.a.not"


@pytest.mark.parametrize(
    "text",
    [
        'start: x\nx: %json {"type": "object", "x": 1}',
        "start: x\nx: %json { no json }",
        '%llguidance {"allow_invalid_utf8": true}\nstart: "x"',
        "start: x\nx[temperature=0.5]: /a/",
        "start: x\nx[max_tokens=5]: /a/",
        "start: a b",
        "",
        "nonsense",
        "start: <|no such token|>",
        "start: <[99999]>",
        "start: " + "(" * 5000 + '"a"' + ")" * 5000,
    ],
)
def test_bad_texts_are_refused(shared: GrammarCompiler, text: str) -> None:
    assert refusal(shared, Lark(text)).param is not None
    assert shared.compile(Regex("a"), param="p").source


def test_schemas_in_strings_and_comments_are_none(shared: GrammarCompiler, factory: MatcherFactory) -> None:
    text = 'start: "%json {" x // %json {\nx: /%json \\/ \\{/ # temperature=1\n'
    matcher = factory.compile(shared.compile(Lark(text), param="p").source)
    assert follows(matcher.begin(Grammar(source=b""), Sampling()), "%json {%json / {")


def test_no_step_of_an_ambiguous_grammar_takes_long(fresh: Fresh) -> None:
    """js-17: what looks small takes longer with every token, and fails its request before it holds up others."""
    matcher = fresh(Lark("start: s\ns: s s s | s s | /[a-z]/ |")).begin(Grammar(source=b""), Sampling())
    mask = np.zeros((1, len(TEXTS.texts) // 32 + 1), np.uint32)
    steps_s: list[float] = []

    def follow() -> None:
        while len(steps_s) < 500:
            begun_s = time.thread_time()
            matcher.fill(mask, ())
            matcher.accept(ord("a"))
            steps_s.append(time.thread_time() - begun_s)

    with pytest.raises(GrammarError, match="items"):
        follow()
    assert max(steps_s) < 0.2


def test_the_server_does_not_load_the_compiler() -> None:
    """It costs 60 ms and 8 MB, and what strangers send stays out of the process."""
    code = "import sys, freehold.serve.server, freehold.llm; sys.exit('llguidance' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_one_that_is_killed_from_outside_is_no_fault_of_the_constraint(
    compiler: GrammarCompiler, number: signal.Signals
) -> None:
    compiler.compile(Regex("a"), param="p")
    [process] = running(compiler)
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(compiler.compile, SLOW, param="p")
        while compiler._idle.qsize() == 2:
            time.sleep(0.001)
        process.send_signal(number)
        assert slow.result().source


def test_one_that_is_killed_each_time_is_told_of_and_forgotten(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(worker: Worker, deadline_s: float) -> bytes:
        assert worker.process is not None
        worker.process.kill()
        return receive(worker, deadline_s)

    compiler.compile(Regex("a"), param="p")
    receive = Worker._receive
    with monkeypatch.context() as patch:
        patch.setattr(Worker, "_receive", kill)
        with pytest.raises(ResourceError, match="SIGKILL twice"):
            compiler.compile(SLOW, param="p")  # so that it has not answered yet
    assert compiler.compile(SLOW, param="p").source
