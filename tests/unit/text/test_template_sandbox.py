"""A hostile model's template gets nowhere: not out of the sandbox, not past its budgets."""
# ruff: noqa: E501 - one template a line

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from freehold.errors import ResourceError
from freehold.text import template_process
from freehold.text.template import ChatTemplate, TemplateError, TemplateLimits

MESSAGES = [{"role": "user", "content": "hi"}]
LIMITS = TemplateLimits(cpu_s=0.5, wall_s=30.0, memory_bytes=64 << 20, steps=100_000, output_chars=1 << 20)

# CANARY stands for the path of a file that must never come to be.
ESCAPES = [
    # Python's object graph
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ().__class__.__bases__[0].__subclasses__() }}",
    "{{ [].__class__.__base__.__subclasses__()[40]('CANARY', 'w').write('x') }}",
    "{{ {}.__class__.__base__ }}",
    "{{ (1).__class__.__base__ }}",
    "{{ messages.__class__ }}",
    "{{ messages[0].content.__class__ }}",
    "{{ messages[0]['__class__']['x'] }}",
    "{{ ''['__class__']['__mro__'] }}",
    "{{ ''|attr('__class__')|attr('__mro__') }}",
    "{{ ''|attr('__cl' ~ 'ass__')|attr('__mro__')|last }}",
    "{{ ''|attr('\\x5f\\x5fclass\\x5f\\x5f')|attr('mro') }}",
    "{% for c in [].__class__.__base__.__subclasses__() %}{{ c }}{% endfor %}",
    "{{ [''] | map(attribute='__class__') | map(attribute='__mro__') | list | first | last | length }}",
    "{{ ['']|map('attr', '__class__')|map('attr', '__base__')|list|first|attr('__subclasses__') }}",
    "{{ ['']|groupby('__class__')|first|first|attr('mro') }}",
    "{{ ['']|sum(attribute='__class__', start=0) }}",
    # functions' globals
    "{{ raise_exception.__globals__ }}",
    "{{ raise_exception.__globals__['json'] }}",
    "{{ strftime_now.__globals__.sys.modules.os.system('touch CANARY') }}",
    "{{ strftime_now.__self__.globals }}",
    "{{ strftime_now.__func__.__globals__ }}",
    "{{ range.__self__ }}{{ range.__globals__['os'] }}",
    "{{ namespace.__init__.__globals__['sys'] }}",
    "{{ namespace.__class__.__mro__ }}",
    "{{ namespace.mro() }}",
    "{{ dict.__call__.__globals__ }}",
    "{{ dict.__class__.__base__.__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.popen('touch CANARY').read() }}",
    "{{ joiner.__init__.__globals__.os.system('touch CANARY') }}",
    "{{ lipsum.__globals__['os'].system('touch CANARY') }}",
    "{{ lipsum() }}",
    "{{ self.__init__.__globals__ }}",
    "{{ self._TemplateReference__context.environment.globals }}",
    "{{ self._TemplateReference__context.vars.x }}",
    "{{ undefined_name.__class__.__init__.__globals__ }}",
    "{{ x.__init__.__builtins__ }}",
    "{% macro m() %}{% endmacro %}{{ m.__class__.__mro__ }}",
    "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
    "{% macro m() %}{{ caller.__globals__.os }}{% endmacro %}{% call m() %}{% endcall %}",
    "{% for x in [1] %}{{ loop._iterator.gi_frame.f_globals }}{{ loop.__init__.__globals__.x }}{% endfor %}",
    "{% for x in [1] %}{{ loop._iterator.gi_code.co_code }}{{ loop.__class__.__mro__ }}{% endfor %}",
    "{% set ns = namespace() %}{{ ns.__class__.__init__.__globals__ }}",
    "{% set ns = namespace(__class__='x') %}{{ ns.a }}",
    "{% set ns = namespace({'_private': 1}) %}",
    "{% set ns = namespace() %}{% set ns.__class__ = dict %}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}",
    # format strings
    "{{ '{0.__class__}'.format(1) }}",
    "{{ '{0.__class__.__init__.__globals__}'.format(raise_exception) }}",
    "{{ '{a.__class__}'.format_map({'a': 1}) }}",
    "{{ ('{0.__cla' ~ 'ss__}').format('') }}",
    "{{ '%s' | format(''.__class__.__mro__) }}",
    "{{ ''.format.__self__.__class__ }}",
    # names that aren't there
    "{{ open('CANARY', 'w').write('x') }}",
    "{{ __import__('os').system('touch CANARY') }}",
    "{{ eval('1') }}",
    "{{ exec('1') }}",
    "{{ getattr('', '__class__') }}",
    "{{ os.system('touch CANARY') }}",
    "{{ config.items() }}",
    "{{ request.application.__globals__ }}",
    "{{ environment.from_string('x').render() }}",
    # loading and importing
    "{% include 'CANARY' %}",
    "{% import 'os' as os %}",
    "{% from 'os' import system %}",
    "{% extends '/etc/passwd' %}",
    "{% include '/proc/self/environ' %}",
    "{% do [].append(1) %}",
    # changing what is shared
    "{{ messages.append(1) }}",
    "{{ messages.clear() }}",
    "{{ messages[0].update({'role': 'x'}) }}",
    "{{ messages[0].pop('role') }}",
    "{{ [1, 2].sort() }}",
    "{{ {}.setdefault('a', 1) }}",
    "{{ dict.fromkeys.__globals__ }}",
    "{{ ['a'] | random }}",
    # frames and code
    "{% set g = (x for x in []) %}",
    "{{ (messages | map('upper')).gi_frame.f_back.f_globals }}",
    "{{ (messages | select).gi_frame.f_builtins }}",
    "{{ raise_exception.__code__ }}{{ raise_exception.__code__.co_consts }}",
    "{{ ''.join.__call__.__self__.__class__.__base__ }}",
    "{{ messages | counted_steps(1) }}",
]

BOMBS = {
    "string times": "{{ 'x' * 10**9 }}",
    "string times, twice": "{% set a = 'x' * 10**8 %}{{ a ~ a ~ a }}",
    "list times": "{{ ([0] * 10**9) | length }}",
    "doubling": "{% set n = namespace(s='xx') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
    "power tower": "{{ 9 ** (9 ** 9) }}",
    "power, print": "{{ 7 ** 3000000 }}",
    "shifted product": "{% set n = namespace(v=3) %}{% for i in range(40) %}{% set n.v = n.v * n.v %}{% endfor %}{{ n.v > 0 }}",
    "huge range": "{{ range(10**12) | list }}",
    "range in pieces": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "loops in loops": "{% for a in 'x'*999 %}{% for b in 'x'*999 %}{% for c in 'x'*999 %}{% endfor %}{% endfor %}{% endfor %}",
    "filtered loops": "{% for i in range(99999) if (range(99999) | select('odd') | list | length) < 0 %}{% endfor %}",
    "recursive loop": "{% for i in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
    "recursive macro": "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    "wide recursion": "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(64) }}",
    "width": "{{ '%1000000000d' % 1 }}",
    "format width": "{{ '{:1000000000}'.format(1) }}",
    "center": "{{ 'x' | center(10**9) }}",
    "ljust": "{{ 'x'.ljust(10**9) }}",
    "zfill": "{{ 'x'.zfill(10**9) }}",
    "expandtabs": "{{ '\\t'.expandtabs(10**9) }}",
    "indent": "{{ ('a\\n' * 1000) | indent(10**6) }}",
    "replace": "{{ ('a' * 10**5).replace('a', 'b' * 10**5) }}",
    "replace empty": "{{ ('a' * 10**6) | replace('', 'b' * 10**4) }}",
    "join": "{{ (['a' * 10**6] * 10**4) | join }}",
    "join wide": "{{ ('x' * 10**6).join('y' * 10**5) }}",
    "tojson indent": "{{ [[1]] | tojson(indent=10**9) }}",
    "batch": "{{ [1] | batch(10**9, 0) | list }}",
    "slice": "{{ [1] | slice(10**9) | list }}",
    "wordwrap": "{{ ('x ' * 10**6) | wordwrap(1) | length }}{{ ('x ' * 10**6) | wordwrap(2) | length }}",
    "urlize": "{{ ('http://a.b/' * 10**6) | urlize }}",
    "sort": "{% for i in range(1000) %}{{ range(99999) | map('string') | sort | length }}{% endfor %}",
    "sum of lists": "{{ ([[1]] * 99999) | sum(start=[]) | length }}",
    "dictsort": "{% for i in range(9999) %}{{ dict.fromkeys(range(9999)) | dictsort | length }}{% endfor %}",
    "long output": "{% for i in range(99999) %}{{ 'x' * 100 }}{% endfor %}",
    "count": "{% for i in range(99999) %}{{ ('ab' * 10**6).count('ba') }}{% endfor %}",
    "cycler": "{% set c = cycler(*(range(99999) | list)) %}{% for i in range(99999) %}{{ c.next() }}{% endfor %}",
}

SYNTAX_BOMBS = {
    "deep parentheses": "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}",
    "deep lists": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "deep blocks": "{% if 1 %}" * 5000 + "{% endif %}" * 5000,
    "deep not": "{{ " + "not " * 50_000 + "1 }}",
    "folded product": "{{ " + " * ".join(["99999999999"] * 2000) + " }}{{ 2 ** 2 ** 2 ** 2 ** 2 ** 2 }}",
    "folded string": "{{ 'x' * 2000000000 }}",
    "folded list": "{{ [1] * 2000000000 }}",
    "unclosed": "{% for x in messages %}",
    "no such filter": "{{ 1 | no_such_filter }}",
    "no such tag": "{% no_such_tag %}",
}


def render(source: str) -> tuple[TemplateError | None, float]:
    template = ChatTemplate(source, limits=LIMITS)
    template.start()
    started = time.process_time()
    try:
        template.render(MESSAGES)
    except TemplateError as error:
        return error, time.process_time() - started
    finally:
        template.close()
    return None, time.process_time() - started


@pytest.mark.parametrize("source", ESCAPES)
def test_escapes_end_in_a_template_error(source: str, tmp_path: Path) -> None:  # se-11
    canary = tmp_path / "canary"
    error, _ = render(source.replace("CANARY", str(canary)))
    assert error is not None, source
    assert error.param == "messages"
    assert error.code in ("template_failed", "template_budget")
    assert not canary.exists()


def test_enough_escapes() -> None:
    assert len(set(ESCAPES)) >= 50


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_stopped(name: str) -> None:  # op-02, se-09
    error, server_s = render(BOMBS[name])
    assert error is not None
    assert error.code in ("template_budget", "template_failed")
    assert server_s < 0.3, "the work must not be done in this process"


@pytest.mark.parametrize("name", SYNTAX_BOMBS)
def test_templates_that_do_not_compile_are_refused(name: str) -> None:
    error, _ = render(SYNTAX_BOMBS[name])
    assert error is not None


@pytest.fixture(scope="module")
def mixed() -> Iterator[ChatTemplate]:
    source = (
        "{% if messages[0].content == 'bomb' %}{{ 'x' * 10**10 }}"
        "{% elif messages[0].content == 'spin' %}{% for i in range(99999) %}{{ ('ab' * 10**6).count('ba') }}{% endfor %}"
        "{% else %}{{ messages[0].content }}{% endif %}"
    )
    template = ChatTemplate(source, limits=LIMITS)
    yield template
    template.close()


@pytest.mark.parametrize("bomb", ["bomb", "spin"])
def test_service_goes_on_after_a_bomb(mixed: ChatTemplate, bomb: str) -> None:
    for _ in range(2):
        with pytest.raises(TemplateError):
            mixed.render([{"role": "user", "content": bomb}])
        assert mixed.render([{"role": "user", "content": "fine"}]).text == "fine"


def test_a_killed_worker_is_replaced() -> None:
    template = ChatTemplate("{{ messages[0].content }}")
    try:
        assert template.render(MESSAGES).text == "hi"
        worker = template._process._worker.process
        assert worker is not None
        worker.kill()
        worker.wait()
        assert template.render(MESSAGES).text == "hi"
    finally:
        template.close()


@pytest.mark.parametrize("size", [1, 300_000, 4_000_000])
def test_a_worker_that_takes_nothing_is_ended_in_time(size: int) -> None:
    template = ChatTemplate("{{ messages[0].content }}", limits=TemplateLimits(wall_s=1.0))
    try:
        assert template.render(MESSAGES).text == "hi"
        worker = template._process._worker.process
        assert worker is not None
        worker.send_signal(signal.SIGSTOP)
        begun_s = time.monotonic()
        with pytest.raises(TemplateError) as caught:
            template.render([{"role": "user", "content": "x" * size}])
        assert caught.value.code == "template_budget"
        assert time.monotonic() - begun_s < 10
        assert worker.poll() is not None
    finally:
        template.close()


def test_a_long_message_arrives_whole() -> None:
    template = ChatTemplate("{{ messages[0].content }}")
    text = "0123456789" * 100_000
    try:
        assert template.render([{"role": "user", "content": text}]).text == text
    finally:
        template.close()


def test_a_worker_that_cannot_run_is_no_fault_of_the_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "worker_that_ends.py").write_text("import sys; sys.exit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(template_process, "WORKER", "worker_that_ends")
    template = ChatTemplate("x")
    with pytest.raises(ResourceError, match="exit code 3"):
        template.render(MESSAGES)


def test_the_worker_knows_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "x")
    template = ChatTemplate("x")
    try:
        template.render(MESSAGES)
        worker = template._process._worker.process
        assert worker is not None
        assert b"SECRET" not in Path(f"/proc/{worker.pid}/environ").read_bytes()
    finally:
        template.close()


def test_close_ends_the_worker() -> None:
    template = ChatTemplate("x")
    template.start()
    worker = template._process._worker.process
    assert worker is not None
    template.close()
    assert worker.poll() is not None


def test_a_forgotten_template_ends_its_worker() -> None:
    template = ChatTemplate("x")
    template.start()
    worker = template._process._worker.process
    assert worker is not None
    del template
    worker.wait(timeout=60)


def test_renderings_from_many_threads_do_not_mix() -> None:
    from concurrent.futures import ThreadPoolExecutor

    template = ChatTemplate("{{ messages[0].content }}{% for i in range(200) %}{% endfor %}")
    try:
        with ThreadPoolExecutor(8) as pool:
            texts = [f"text {n}" * (n % 7) for n in range(200)]
            chats = [[{"role": "user", "content": text}] for text in texts]
            assert [rendered.text for rendered in pool.map(template.render, chats)] == texts
    finally:
        template.close()
