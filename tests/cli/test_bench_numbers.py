"""Numbers of ``freehold bench`` that are none: every flag that takes a fraction refuses them by its name."""

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from freehold.cli.commands import app
from freehold.errors import ConfigError

_command = typer.main.get_command(app)
assert isinstance(_command, TyperGroup)
FRACTIONS = [each.opts[0] for each in _command.commands["bench"].params if each.type.name == "float"]


def test_flags_that_take_fractions_are_found() -> None:
    assert {"--request-timeout", "--random-range-ratio", "--pause", "--length-scale", "--temperature"} < {*FRACTIONS}


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("flag", FRACTIONS)
def test_what_is_no_finite_number_is_refused(flag: str, value: str) -> None:
    if (flag, value) == ("--burstiness", "inf"):
        return  # constant gaps
    ramp = ["--ramp-up-strategy", "linear"] if flag == "--burstiness" else []
    raised = CliRunner().invoke(app, ["bench", flag, value, *ramp]).exception
    assert isinstance(raised, ConfigError)
    assert str(raised).startswith(f"{flag} can't be {value}")


@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize(
    "arguments", [("--goodput", "ttft:{}"), ("--metric-percentiles", "{}"), ("--max-concurrency", "{}")]
)
def test_lists_refuse_it_too(arguments: tuple[str, str], value: str) -> None:
    raised = CliRunner().invoke(app, ["bench", arguments[0], arguments[1].format(value)]).exception
    assert isinstance(raised, ConfigError)
    assert arguments[0] in str(raised)
