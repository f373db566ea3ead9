"""Every command and every flag, as they are declared: help, values that can't be, and what a shell is told."""

import os
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner, Result

from freehold.cli.commands import app
from freehold.errors import ConfigError
from freehold.settings import SETTINGS

_SETTINGS = {f"setting_{setting.name}": setting for setting in SETTINGS}
_ARGUMENTS = {"run": ["model", "hello"], "synth": ["x.gguf"], "experiment": ["ls"], "keys create": ["name"]}
"""What commands need before anything else is looked at."""


def walk(command: click.Command, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    for name, child in command.commands.items() if isinstance(command, click.Group) else ():
        yield from walk(child, *path, name)


COMMANDS = dict(walk(app))
OPTIONS = [
    (path, option)
    for path, command in COMMANDS.items()
    for option in command.params
    if isinstance(option, click.Option)
]


def invoke(path: tuple[str, ...], *arguments: str) -> Result:
    return CliRunner().invoke(app, [*path, *arguments], prog_name="freehold")


def unusable(option: click.Option) -> str | None:
    """A value that the flag's kind refuses; None if it takes any text."""
    if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
        return "many"
    if (setting := _SETTINGS.get(option.name)) is not None:
        for value in ("\x07", "many many"):
            try:
                setting.kind.parse(value)
            except ValueError:
                return value
    return None


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_tells_of_every_argument_and_flag(path: tuple[str, ...]) -> None:
    result = invoke(path, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(" ".join(("Usage: freehold", *path)))
    words = result.stdout.replace(",", " ").split()
    for parameter in COMMANDS[path].params:
        if isinstance(parameter, click.Option):
            assert {*parameter.opts, *parameter.secondary_opts} <= {*words}
        assert parameter.help or "x>=1" in result.stdout, f"{parameter.name} is explained"


@pytest.mark.parametrize(("path", "option"), OPTIONS, ids=lambda part: getattr(part, "name", None) or " ".join(part))
def test_what_a_flag_cannot_be_is_refused_by_its_name(path: tuple[str, ...], option: click.Option) -> None:
    needed = _ARGUMENTS.get(" ".join(path), [])
    if option.is_flag:
        result = invoke(path, *needed, f"{option.opts[-1]}=maybe")
        assert (result.exit_code, option.opts[-1] in result.stderr) == (2, True), result.output
        return
    for flag in option.opts:
        result = invoke(path, *needed, flag)
        assert (result.exit_code, flag in result.stderr) == (2, True), result.output
    if (value := unusable(option)) is not None:
        result = invoke(path, *needed, option.opts[-1], value)
        if isinstance(result.exception, ConfigError):  # `freehold.cli.main` makes exit code 2 of it
            assert option.opts[-1] in str(result.exception)
        else:
            assert (result.exit_code, option.opts[-1] in result.stderr) == (2, True), result.output


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_unknown_flags_are_refused(path: tuple[str, ...]) -> None:
    result = invoke(path, "--nonsense")
    assert (result.exit_code, "--nonsense" in result.stderr) == (2, True), result.output


def test_shells_complete_flags() -> None:
    asking = {"_FREEHOLD_COMPLETE": "bash_complete", "COMP_WORDS": "freehold serve --max-num-s", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-m", "freehold"], env={**os.environ, **asking}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "plain,--max-num-seqs\n"
