"""Rules of the house that no linter knows, checked over every source file."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import freehold

ROOT = Path(__file__).parents[2]
PYTHON_SOURCES = sorted((ROOT / "src").rglob("*.py"))
NATIVE_SOURCES = sorted(p for p in (ROOT / "csrc").rglob("*") if p.suffix in {".cpp", ".h", ".hpp", ".cc"})

ENVIRONMENT_NAMES = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
BANNED_CALLS = {"eval", "exec", "__import__"}
BANNED_MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}


def dotted_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each name, attribute and import in a syntax tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def environment_reads(source: str) -> list[int]:
    """Lines that touch the process environment, however it was imported."""
    return [
        line
        for line, name in dotted_names(ast.parse(source))
        if name.split(".")[0] in {"os", "posix"} and ENVIRONMENT_NAMES.intersection(name.split("."))
    ]


def banned_uses(source: str) -> list[tuple[int, str]]:
    """Lines that run or unpickle data as code."""
    tree = ast.parse(source)
    calls = [
        (node.lineno, node.func.id)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BANNED_CALLS
    ]
    modules = [(line, name) for line, name in dotted_names(tree) if name.split(".")[0] in BANNED_MODULES]
    return calls + modules


@pytest.mark.parametrize(
    "source",
    ["import os\nos.environ['X']", "from os import environ", "import os\nos.getenv('X')", "from os import getenv as g"],
)
def test_environment_scan_sees_each_spelling(source: str) -> None:
    assert environment_reads(source)


@pytest.mark.parametrize(
    "source", ["eval('1')", "exec('x')", "import pickle", "from marshal import loads", "import numpy, shelve"]
)
def test_banned_scan_sees_each_spelling(source: str) -> None:
    assert banned_uses(source)


def test_only_resolve_reads_the_environment() -> None:
    reads = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in PYTHON_SOURCES
        if path.name != "resolve.py"
        for line in environment_reads(path.read_text(encoding="utf-8"))
    }
    assert not reads, "settings enter through freehold.resolve alone"


def test_native_code_reads_no_environment() -> None:
    reads = [
        str(path.relative_to(ROOT)) for path in NATIVE_SOURCES if re.search(r"\b(secure_)?getenv\b", path.read_text())
    ]
    assert not reads


def test_no_source_runs_data_as_code() -> None:
    uses = {
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in PYTHON_SOURCES
        for line, name in banned_uses(path.read_text(encoding="utf-8"))
    }
    assert not uses


def test_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert freehold.__version__ == project["version"]


def test_no_package_index_is_named() -> None:
    """Packages come from wherever pip is configured to look, so that mirrors and proxies work."""
    files = [ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / ".ci" / "run"]
    named = [path.name for path in files if re.search(r"index-url|--find-links|pypi\.org", path.read_text())]
    assert not named
