"""Numbers of ``freehold bench`` that are none: every flag that takes a fraction refuses them by its name."""

import click
import pytest
from click.testing import CliRunner

from freehold.cli.bench import bench
from freehold.errors import ConfigError

FRACTIONS = [flag.opts[0] for flag in bench.params if isinstance(flag.type, click.types.FloatParamType)]


def said_of(*arguments: str) -> str:
    """What the command says when it refuses these."""
    result = CliRunner().invoke(bench, arguments)
    if result.exit_code == 2:
        return result.stderr
    assert isinstance(result.exception, ConfigError)
    return str(result.exception)


def test_flags_that_take_fractions_are_found() -> None:
    assert {"--request-timeout", "--random-range-ratio", "--pause", "--length-scale", "--temperature"} < {*FRACTIONS}


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("flag", FRACTIONS)
def test_what_is_no_finite_number_is_refused(flag: str, value: str) -> None:
    if (flag, value) == ("--burstiness", "inf"):
        return  # constant gaps
    ramp = ["--ramp-up-strategy", "linear"] if flag == "--burstiness" else []
    said = said_of(flag, value, *ramp)
    assert flag in said
    assert value in said


@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize(
    "arguments", [("--goodput", "ttft:{}"), ("--metric-percentiles", "{}"), ("--max-concurrency", "{}")]
)
def test_lists_refuse_it_too(arguments: tuple[str, str], value: str) -> None:
    assert arguments[0] in said_of(arguments[0], arguments[1].format(value))
