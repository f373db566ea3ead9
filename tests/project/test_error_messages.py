"""One form for every error that a person reads: it begins in lower case, after "freehold: ", and ends without a full
stop. What would be a second sentence follows a semicolon."""

import ast
import re
from collections.abc import Iterator

import pytest
from tests.project.test_sources import PYTHON_SOURCES, ROOT

_PROPER_NAMES = ("Mooncake", "Object missing")
"""Names, and what msgspec says, which is put into other words before anybody reads it."""
_SENTENCE = re.compile(rf"(?!{'|'.join(_PROPER_NAMES)})[A-Z][a-z']* ")


def messages(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each message that errors are made with; ``{}`` stands for what isn't known before it runs."""
    nodes = list(ast.walk(ast.parse(source)))
    makers = {
        node.name for node in nodes if isinstance(node, ast.FunctionDef) and name_of(node.returns).endswith("Error")
    }
    for node in nodes:
        if isinstance(node, ast.Call):
            called = name_of(node.func)
            if called.endswith("Error") or called in makers:
                yield from ((node.lineno, text) for each in node.args if (text := text_of(each)))
        elif isinstance(node, ast.Constant | ast.JoinedStr) and (text_of(node) or "").startswith("freehold: "):
            yield node.lineno, (text_of(node) or "").removeprefix("freehold: ")


def name_of(node: ast.expr | None) -> str:
    """The last part of a name with dots."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def text_of(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (text_of(node.left) or "{}") + (text_of(node.right) or "{}")
    return None


def is_in_form(text: str) -> bool:
    ends = text.endswith(("…", "...")) or not text.endswith(".")
    return ends and not _SENTENCE.match(text) and not re.search(r"\. [A-Z][a-z]", text)


def test_messages_have_one_form() -> None:
    found = [
        (path.relative_to(ROOT), line, text) for path in PYTHON_SOURCES for line, text in messages(path.read_text())
    ]
    assert len(found) > 400
    assert not [each for each in found if not is_in_form(each[2])]


@pytest.mark.parametrize(
    "source",
    [
        'raise ConfigError("There is no model")',
        'raise ConfigError(f"{path} is empty.") from None',
        'raise errors.ConfigError(f"{path} is empty. " "Download it again")',
        'def _wrong() -> ConfigError: ...\n_wrong("it is wrong.")',
        'raise ConfigError("it is wrong; " + remedy + ".")',
        'print(f"freehold: The server is down")',
    ],
)
def test_the_check_sees_other_forms(source: str) -> None:
    assert not all(is_in_form(text) for _, text in messages(source))
