"""``freehold replay``."""

import os
import sys
from pathlib import Path
from typing import Any

import click

from freehold import resolve
from freehold.amounts import amount
from freehold.cli.options import PATH, config_option, with_settings
from freehold.cli.recordings import recording_path, with_recording
from freehold.errors import ConfigError, RecordingError, ResourceError, printable

EXIT_DIFFERENT = 1


@click.command()
@with_recording
@config_option
@click.option("--only", metavar="ID", help="One request, as `freehold record ls` names it.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="The first N requests.")
@click.option(
    "--concurrency", type=click.IntRange(1), metavar="N", default=64, help="Requests at once, with --timing fast."
)
@click.option("--timing", metavar="{fast,recorded}", default="fast", help="As fast as it goes, or each when it came.")
@click.option("--bisect", is_flag=True, help="Repeat what differs alone, and beside what ran with it.")
@click.option("--report", type=PATH, metavar="FILE", help="Write the result as JSON.")
@with_settings(serve=False)
def replay(
    recording: Path | None,
    config: Path | None,
    only: str | None,
    limit: int | None,
    concurrency: int,
    timing: str,
    bisect: bool,
    report: Path | None,
    flags: dict[str, Any],
) -> None:
    """Ask again what was recorded in full, and compare ids, log probabilities and digests of logits to the bit.

    Model, numeric formats and sizes are the recording's unless flags say otherwise. Exit code 1 if anything differs.
    """
    import msgspec

    from freehold.engine.remote import ProcessEngine
    from freehold.observe.record.reader import open_recording
    from freehold.replay.replay import Options, recorded_settings
    from freehold.replay.replay import replay as run_replay
    from freehold.replay.report import lines
    from freehold.replay.run import TIMINGS, Pace

    if timing not in TIMINGS:
        raise ConfigError(f"timing can't be {timing!r}; say {' or '.join(TIMINGS)}")
    resolve.lookup("model", flags, config)  # refuses unusable settings before a recording is read
    if report is not None:
        _check_writable(report)
    with open_recording(recording_path(recording)) as opened:
        for fault in opened.faults:
            print(f"note: {printable(fault)}")
        if not len(opened):
            raise RecordingError(f"no request is recorded in {opened.path}")
        settings = {**recorded_settings(opened.headers[-1]), **flags}
        if "model" not in settings:
            raise ConfigError("the recording doesn't say where its model is; name it with --model")
        options = Options(Pace(TIMINGS[timing], concurrency), only, limit, with_bisection=bisect)
        engine = resolve.engine_config(config=config, **settings)
        num = 1 if only is not None else min(len(opened), limit or len(opened))
        print(f"replaying {amount(num, 'recorded request')} on an engine of its own …", file=sys.stderr, flush=True)
        found = run_replay(opened, engine, options, ProcessEngine.start)
    for line in lines(found):
        print(printable(line))
    if report is not None:
        _write(report, msgspec.json.format(msgspec.json.encode(found)))
    if found.num_differing:
        sys.exit(EXIT_DIFFERENT)


def _check_writable(path: Path) -> None:
    """Before the work, of which nothing would be left.

    Raises:
        ResourceError: a file can't be written there.
    """
    if path.is_dir():
        reason = "it is a folder"
    elif not path.parent.is_dir():
        reason = f"there is no folder {path.parent}"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        reason = "permission denied"
    else:
        return
    raise ResourceError(f"the report can't be written to {path}: {reason}")


def _write(path: Path, data: bytes) -> None:
    """
    Raises:
        ResourceError: it can't be written.
    """
    try:
        path.write_bytes(data + b"\n")
    except OSError as error:
        raise ResourceError(f"the report can't be written to {path}: {error.strerror}") from None
