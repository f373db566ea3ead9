"""Rules for the tests themselves: each can fail, and none leaves a process behind."""

import ast
import functools
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import processes

TESTS = Path(__file__).parents[1]
Function = ast.FunctionDef | ast.AsyncFunctionDef

CHECKS = {"raises", "warns", "fail", "expect"}
"""Of pytest and Playwright."""
OWN_CHECKS = {"both", "close", "pull", "run_through_kills", "storm", "told"}
"""Functions of tests that assert for those who call them, beside those that `is_check` knows by their names."""


@functools.cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(TESTS.rglob("*.py"))}


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def called(call: ast.Call) -> str:
    """The last part of a called function's name."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def stops_at_failure(call: ast.Call) -> bool:
    """As in `subprocess.run(…, check=True)`."""
    return any(
        word.arg == "check" and isinstance(word.value, ast.Constant) and word.value.value is True
        for word in call.keywords
    )


def is_check(name: str) -> bool:
    return name == "check" or name.startswith(("check_", "assert_"))


def can_fail(function: Function) -> bool:
    """Whether it asserts, or calls what does; which of its lines run isn't known."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    return any(isinstance(node, ast.Assert) for node in ast.walk(function)) or any(
        called(call) in CHECKS | OWN_CHECKS or is_check(called(call)) or stops_at_failure(call) for call in calls
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("assert x", True),
        ("with pytest.raises(ValueError): x()", True),
        ("for y in x: check_all(y)", True),
        ("run(x, check=True)", True),
        ("run(x, check=False)", False),
        ("x == 1", False),
        ("'assert x'", False),
        ("...", False),
    ],
)
def test_the_scan_tells_whether_a_test_can_fail(body: str, expected: bool) -> None:
    [function] = functions(ast.parse(f"def test(x):\n    {body}"))
    assert can_fail(function) == expected


def test_every_test_and_check_can_fail() -> None:
    """A test that asserts nothing stays green whatever breaks."""
    empty = [
        f"{path.relative_to(TESTS)}:{function.lineno} {function.name}"
        for path, tree in trees().items()
        for function in functions(tree)
        if (function.name.startswith("test_") or is_check(function.name)) and not can_fail(function)
    ]
    assert not empty


def test_modules_of_tests_have_names_of_their_own() -> None:
    """Folders of tests are no packages, so two modules of one name can't be imported by one run."""
    names = [path.name for path in TESTS.rglob("test_*.py")]
    assert not {name for name in names if names.count(name) > 1}


def test_processes_are_started_where_they_end_with_the_test() -> None:
    started = [
        f"{path.relative_to(TESTS)}:{node.lineno}"
        for path, tree in trees().items()
        if path != TESTS / "processes.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and called(node) in {"Popen", "create_subprocess_exec", "create_subprocess_shell"}
    ]
    assert not started, "tests.processes.start ends them"


def test_processes_that_go_on_are_ended() -> None:
    with processes.ending():
        process = processes.start([sys.executable, "-c", "import time; time.sleep(3600)"])
    assert process.returncode == -signal.SIGKILL
