"""Where commands look for a recording."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from freehold import resolve
from freehold.cli.options import PATH
from freehold.errors import ConfigError

_argument = click.argument(
    "recording",
    type=PATH,
    required=False,
    help="A server's --record-dir, or one segment of it. Without it: the usual folder.",
)
_option = click.option("--record-dir", type=PATH, metavar="DIR", help="RECORDING, as `freehold serve` spells it.")


def with_recording(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command be told which recording, as its argument RECORDING or with ``--record-dir``.

    It receives either as ``recording``, and raises ConfigError if they are two different ones.
    """

    @wraps(command)
    def run(recording: Path | None, record_dir: Path | None, **arguments: Any) -> None:
        if recording is not None and record_dir is not None and recording != record_dir:
            raise ConfigError(f"RECORDING is {recording} and --record-dir is {record_dir}; name one")
        command(recording=record_dir if recording is None else recording, **arguments)

    return _argument(_option(run))


def recording_path(given: Path | None) -> Path:
    """The recording that was named, or where servers record to if nothing else is said.

    Raises:
        ConfigError: an unusable value in the environment or its file.
    """
    if given is not None:
        return given
    path: Path = resolve.lookup("record_dir", {}).value
    return path
