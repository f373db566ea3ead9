"""Where commands look for a recording."""

from pathlib import Path
from typing import Annotated

import typer

from freehold import resolve

RecordingArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="RECORDING",
        help="A server's --record-dir, or one segment of it. Without it: the usual folder.",
        show_default=False,
    ),
]


def recording_path(given: Path | None) -> Path:
    """The recording that was named, or where servers record to if nothing else is said.

    Raises:
        ConfigError: an unusable value in the environment or its file.
    """
    if given is not None:
        return given
    path: Path = resolve.lookup("record_dir", {}).value
    return path
