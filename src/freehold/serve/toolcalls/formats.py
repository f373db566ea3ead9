"""The ways in which models write calls."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from freehold.grammar.constraint import Tagging
from freehold.serve.toolcalls.calls import openai_id, short_id
from freehold.serve.toolcalls.reader import CallParser
from freehold.serve.toolcalls.scanner import Scanner
from freehold.serve.toolcalls.source import MalformedError, Scan
from freehold.serve.toolcalls.tagged import tagged_arguments
from freehold.serve.toolcalls.writing import Writing

TOOL_CALL, END_OF_TOOL_CALL = "<tool_call>", "</tool_call>"
PYTHON_TAG = "<|python_tag|>"
TOOL_CALLS, CALL_ID, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"

FUNCTION, END_OF_FUNCTION = "<function=", "</function>"
PARAMETERS = Tagging("<parameter=", ">", "", "</parameter>", pad="\n")
"""As Qwen3-Coder writes arguments."""
ARG_KEY = "<arg_key>"
KEYS_AND_VALUES = Tagging(ARG_KEY, "</arg_key>", "<arg_value>", "</arg_value>")
"""As GLM writes arguments."""

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,256}")


def hermes(scanner: Scanner) -> Scan[None]:
    """Hermes, Qwen: ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, as often as wanted."""

    def tagged() -> Scan[None]:
        yield from scanner.objects()
        yield from scanner.source.skip_space()
        yield from scanner.source.expect(END_OF_TOOL_CALL)
        yield from scanner.source.skip_space()

    while (yield from scanner.find(TOOL_CALL)):
        yield from scanner.attempt(tagged())


def llama3(scanner: Scanner) -> Scan[None]:
    """Llama 3: an answer that is a call, ``{"name": …, "parameters": {…}}``, or several with ``;`` between; or such
    calls behind ``<|python_tag|>``."""
    yield from scanner.source.skip_space()
    yield from scanner.source.accept(PYTHON_TAG)
    yield from scanner.attempt(_separated(scanner))
    while (yield from scanner.find(PYTHON_TAG)):
        yield from scanner.attempt(_separated(scanner))


def json(scanner: Scanner) -> Scan[None]:
    """An answer that is a call or a list of calls, and nothing else before them."""
    yield from scanner.attempt(_separated(scanner))
    yield from scanner.rest()


def mistral(scanner: Scanner) -> Scan[None]:
    """Mistral: ``[TOOL_CALLS]`` with a list of calls, or before each one with its name and ``[ARGS]``."""

    def listed_or_named() -> Scan[None]:
        source = scanner.source
        yield from source.skip_space()
        first = yield from source.peek()
        if first == "[":
            yield from scanner.objects()
        else:
            name = yield from _word(scanner)
            if (yield from source.accept(CALL_ID)):
                yield from _word(scanner)
            yield from source.accept(ARGS)
            yield from source.skip_space()
            yield from scanner.call(name)
        yield from source.skip_space()

    while (yield from scanner.find(TOOL_CALLS)):
        yield from scanner.attempt(listed_or_named())


def qwen3_coder(scanner: Scanner) -> Scan[None]:
    """Qwen3-Coder, Qwen3.5: ``<tool_call><function=name><parameter=key>value</parameter></function></tool_call>``."""
    source = scanner.source

    def tagged() -> Scan[None]:
        yield from source.skip_space()
        yield from source.expect(FUNCTION)
        name = yield from _word(scanner)
        yield from source.expect(">")
        yield from tagged_arguments(scanner, name, PARAMETERS, END_OF_FUNCTION)
        yield from source.skip_space()
        yield from source.expect(END_OF_TOOL_CALL)
        yield from source.skip_space()

    while (yield from scanner.find(TOOL_CALL)):
        yield from scanner.attempt(tagged())


def glm45(scanner: Scanner) -> Scan[None]:
    """GLM 4.5 and later: ``<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>``. Only known
    tools can be called."""
    source = scanner.source

    def tagged() -> Scan[None]:
        yield from source.skip_space()
        name = yield from _word(scanner)
        if name not in scanner.tools:
            raise MalformedError
        yield from tagged_arguments(scanner, name, KEYS_AND_VALUES, END_OF_TOOL_CALL)
        yield from source.skip_space()

    while (yield from scanner.find(TOOL_CALL)):
        yield from scanner.attempt(tagged())


def _separated(scanner: Scanner) -> Scan[None]:
    """Calls of known tools, with semicolons or white space between."""
    source = scanner.source
    while True:
        yield from scanner.objects(known=True)
        yield from source.skip_space()
        yield from source.accept(";")
        yield from source.skip_space()
        if not source.held or source.held[0] not in "{[":
            return


def _word(scanner: Scanner) -> Scan[str]:
    source = scanner.source
    yield from source.peek()
    while (match := _NAME.match(source.held)) and match.end() == len(source.held):
        yield from source.more()
    if match is None:
        raise MalformedError
    source.take(match.end())
    return match[0]


@dataclass(frozen=True, slots=True)
class Format:
    """A way to write calls.

    Attributes:
        parser: reads answers.
        one, several: how one call, and several, are written.
        new_id: makes ids that the model's template takes.
        literals: of control tokens that the parser must see.
        openers: texts behind which calls may come.
        is_shown_by_template: the model's template tells it of tools, and writes calls in this way; else we do.
    """

    parser: CallParser
    one: Writing
    several: Writing
    new_id: Callable[[], str] = openai_id
    literals: tuple[str, ...] = ()
    openers: tuple[str, ...] = ()
    is_shown_by_template: bool = True


_HERMES = Writing(f'{TOOL_CALL}\n{{"name": "', '", "arguments": ', f"}}\n{END_OF_TOOL_CALL}", "\n", opener=TOOL_CALL)
_LLAMA3 = Writing('{"name": "', '", "parameters": ', "}", "; ", arguments_key="parameters")
_QWEN3_CODER = Writing(
    f"{TOOL_CALL}\n{FUNCTION}",
    ">",
    f"{END_OF_FUNCTION}\n{END_OF_TOOL_CALL}",
    "\n",
    opener=TOOL_CALL,
    tagging=PARAMETERS,
)
_GLM45 = Writing(TOOL_CALL, "", END_OF_TOOL_CALL, "\n", opener=TOOL_CALL, tagging=KEYS_AND_VALUES)
_MISTRAL = Writing(TOOL_CALLS, ARGS, opener=TOOL_CALLS)
_OBJECT = Writing('{"name": "', '", "arguments": ', "}", arguments_key="arguments")
_LIST = replace(_OBJECT, separator=", ", opening="[", closing="]")
_MISTRAL_LIST = replace(_LIST, opening=f"{TOOL_CALLS}[", opener=TOOL_CALLS, arguments_key="")

FORMATS = {
    "hermes": Format(hermes, _HERMES, _HERMES, literals=(TOOL_CALL, END_OF_TOOL_CALL), openers=(TOOL_CALL,)),
    "qwen3_coder": Format(
        qwen3_coder,
        _QWEN3_CODER,
        _QWEN3_CODER,
        literals=(TOOL_CALL, END_OF_TOOL_CALL),
        openers=(TOOL_CALL,),
    ),
    "glm45": Format(
        glm45,
        _GLM45,
        _GLM45,
        literals=(TOOL_CALL, END_OF_TOOL_CALL, ARG_KEY, "</arg_key>", "<arg_value>", "</arg_value>"),
        openers=(TOOL_CALL,),
    ),
    "llama3_json": Format(llama3, _LLAMA3, _LLAMA3, literals=(PYTHON_TAG,), openers=(PYTHON_TAG,)),
    "mistral": Format(
        mistral, _MISTRAL, _MISTRAL, short_id, literals=(TOOL_CALLS, CALL_ID, ARGS), openers=(TOOL_CALLS,)
    ),
    "json": Format(json, _OBJECT, _LIST, is_shown_by_template=False),
}
"""By the names that ``--tool-call-parser`` takes, which are vLLM's where it has them."""

MISTRAL_LIST = replace(FORMATS["mistral"], one=_MISTRAL_LIST, several=_MISTRAL_LIST)
"""For Mistral's models without ``[ARGS]``, the older ones."""
