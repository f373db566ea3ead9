"""The process that renders chat templates. Run by `template_process`; of Freehold, it has `confined` alone.

A model's template is a program from a stranger. Jinja's sandbox keeps it from Python's internals; this process keeps
it from everything else.

Frames are JSON. The first one carries the templates and the limits; each later one asks for one rendering.
"""

import datetime
import json
import pprint  # noqa: F401 - Jinja imports it, and the next one, when a filter needs them: no file can be opened then
import textwrap  # noqa: F401
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from freehold.workers.confined import confine, read_frame, reply

_COUNTED = "counted_steps"
_WARM_UP_LIMITS = {"steps": 100, "output_chars": 1000, "cpu_s": 1.0}


class _RefusedError(jinja2.TemplateError):
    """The template called `raise_exception`."""


class _BudgetExceededError(Exception):
    """The template takes too many steps or writes too much."""


class _Generation(Extension):
    """Hugging Face's ``{% generation %}``: marks what an assistant wrote, for training. It renders as its body."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _Namespace(Namespace):
    """`namespace()` that stores no underscored names, as Hugging Face has it."""

    def __init__(*args: Any, **values: Any) -> None:
        self, *rest = args
        attributes = dict(*rest, **values)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        Namespace.__setitem__(self, name, value)


class _DictFactory:
    """`dict` without its class."""

    def __call__(self, *args: Any, **values: Any) -> dict[Any, Any]:
        return dict(*args, **values)

    def fromkeys(self, keys: Iterable[Any], value: Any = None) -> dict[Any, Any]:
        return dict.fromkeys(keys, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace stores no name that begins with an underscore, such as {name!r}")


def _raise_exception(message: object) -> None:
    raise _RefusedError(str(message))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Unlike Jinja's own filter: no HTML escapes, key order kept.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class _Environment(ImmutableSandboxedEnvironment):
    """Hugging Face's conventions for chat templates, plus a count of loop rounds and calls."""

    def __init__(self, max_steps: int) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self.max_steps = max_steps
        self.steps = 0
        self.now = datetime.datetime.min
        self.filters["tojson"] = _tojson
        self.filters[_COUNTED] = jinja2.pass_environment(_counted)
        self.globals |= {
            "raise_exception": _raise_exception,
            "strftime_now": self._strftime_now,
            "dict": _DictFactory(),
            "namespace": _Namespace,
        }
        # The same request must give the same prompt.
        del self.filters["random"], self.globals["lipsum"]

    def _strftime_now(self, pattern: str) -> str:
        return self.now.strftime(pattern)

    def step(self) -> None:
        self.steps += 1
        if self.steps > self.max_steps:
            raise _BudgetExceededError(f"the template takes more than {self.max_steps} steps")

    def unsafe_undefined(self, obj: Any, attribute: str) -> jinja2.Undefined:
        # Jinja would print nothing and go on.
        raise SecurityError(f"access to attribute {attribute!r} of a {type(obj).__name__} is unsafe")

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        __self.step()
        return super().call(__context, __obj, *args, **kwargs)

    def load_counted(self, tree: nodes.Template) -> jinja2.Template:
        """Compile a parsed template whose loops count their rounds."""
        for loop in list(tree.find_all(nodes.For)):
            loop.iter = nodes.Filter(loop.iter, _COUNTED, [], [], None, None).set_lineno(loop.lineno)
        tree.set_environment(self)
        return jinja2.Template.from_code(self, self.compile(tree), self.make_globals(None))


def _counted(environment: _Environment, items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        environment.step()
        yield item


def _iterates_content(tree: nodes.Template) -> bool:
    """Whether the template goes through a message's list of content parts itself."""

    def reads_content(node: nodes.Node) -> bool:
        names = [item.attr for item in _find(node, nodes.Getattr)]
        names += [item.arg.value for item in _find(node, nodes.Getitem) if isinstance(item.arg, nodes.Const)]
        for call in _find(node, nodes.Call):  # message.get('content')
            if isinstance(call.node, nodes.Getattr) and call.node.attr == "get" and call.args:
                names += [argument.value for argument in call.args[:1] if isinstance(argument, nodes.Const)]
        return "content" in names

    names = {"content"}
    for assignment in tree.find_all(nodes.Assign):
        if isinstance(assignment.target, nodes.Name) and reads_content(assignment.node):
            names.add(assignment.target.name)
    return any(
        reads_content(loop.iter) or any(name.name in names for name in _find(loop.iter, nodes.Name))
        for loop in tree.find_all(nodes.For)
    )


def _find(node: nodes.Node, kind: type[Any]) -> Iterator[Any]:
    if isinstance(node, kind):
        yield node
    yield from node.find_all(kind)


def _literal_text(tree: nodes.Template) -> str:
    texts = [data.data for data in tree.find_all(nodes.TemplateData)]
    texts += [const.value for const in tree.find_all(nodes.Const) if isinstance(const.value, str)]
    return "\0".join(texts)


class Renderer:
    """Compiled templates and the limits they run under."""

    def __init__(self, sources: dict[str, str], limits: dict[str, Any]) -> None:
        self.environment = _Environment(limits["steps"])
        self.max_output_chars: int = limits["output_chars"]
        self.cpu_s: float = limits["cpu_s"]
        self.templates: dict[str, jinja2.Template] = {}
        self.facts: dict[str, dict[str, Any]] = {}
        for name, source in sources.items():
            tree = self.environment.parse(source)
            self.facts[name] = {
                "literals": _literal_text(tree),
                "iterates_content": _iterates_content(tree),
                "variables": sorted(meta.find_undeclared_variables(tree)),
            }
            self.templates[name] = self.environment.load_counted(tree)

    def render(self, template: str, variables: dict[str, Any], now: list[int]) -> str:
        """One rendering; raises what the template raises."""
        self.environment.steps = 0
        self.environment.now = datetime.datetime(*now)  # type: ignore[arg-type]  # year to microsecond
        chunks, size = [], 0
        for chunk in self.templates[template].generate(**variables):
            size += len(chunk)
            if size > self.max_output_chars:
                raise _BudgetExceededError(f"the template writes more than {self.max_output_chars} characters")
            chunks.append(chunk)
        return "".join(chunks)


def _answer(work: Callable[[], dict[str, Any]]) -> bytes:
    """Result or error as JSON. Errors of every kind are answers: a template may raise whatever Python can."""
    try:
        return json.dumps(work(), ensure_ascii=False).encode("utf-8")
    except _RefusedError as error:
        failure = ("refused", str(error))
    except _BudgetExceededError as error:
        failure = ("budget", str(error))
    except MemoryError:
        failure = ("budget", "the template takes too much memory")
    except RecursionError:
        failure = ("budget", "the template is nested too deep")
    except jinja2.TemplateSyntaxError as error:
        failure = ("failed", f"line {error.lineno}: {error.message}")
    except Exception as error:
        failure = (
            "failed",
            f"{error}" if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {error}",
        )
    kind, message = failure
    return json.dumps({"error": kind, "message": message[:1000]}).encode("ascii")


def _warm_up() -> None:
    """Use once what Python and Jinja load late: codecs, strftime's parts, the formatting of errors."""
    now = [2000, 1, 1, 0, 0, 0, 0]
    samples = ("{{ 'é\\n' ~ {'a': [1]} | tojson }}{{ strftime_now('%d %b %Y') }}", "{{ 1 + 'x' }}", "{% for %}")
    for source in samples:
        _answer(lambda source=source: {"text": Renderer({"": source}, _WARM_UP_LIMITS).render("", {}, now)})  # type: ignore[misc]


def main() -> None:
    """Answer the setup with what the templates tell of themselves, and then one rendering after the other."""
    setup = json.loads(read_frame())
    limits: dict[str, Any] = setup["limits"]
    _warm_up()
    confine(limits["memory_bytes"])
    renderers: list[Renderer] = []

    def compile_all() -> dict[str, Any]:
        renderers.append(Renderer(setup["sources"], limits))
        return {"facts": renderers[0].facts}

    reply(lambda: _answer(compile_all), limits["cpu_s"])
    while True:
        request = read_frame()
        reply(
            lambda request=request: _answer(lambda: {"text": renderers[0].render(**json.loads(request))}),  # type: ignore[misc]
            limits["cpu_s"],
        )
