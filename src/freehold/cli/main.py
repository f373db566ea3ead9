"""The ``freehold`` command. Subcommands parse their arguments and hand over; slow imports wait until then."""

import errno
import shutil
import signal
import sys
from types import FrameType
from typing import Annotated, NoReturn

import typer

from freehold import __version__
from freehold.cli import doctor, serve, store, synth, talk
from freehold.errors import OUT_OF_MEMORY, EngineError, FreeholdError, printable

EXIT_FAILED = 1
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143

app = typer.Typer(
    name="freehold",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": shutil.get_terminal_size().columns},
    help="Own your LLM inference: serve, measure, tune and explain a model on your own hardware.",
)
app.command()(serve.serve)
app.command()(talk.chat)
app.command()(talk.run)
app.command()(store.pull)
app.command("list")(store.list_models)
app.command()(store.rm)
app.command()(synth.synth)
app.command()(doctor.doctor)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"freehold {__version__}")
        raise typer.Exit


@app.callback()
def freehold(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Own your LLM inference."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """Run the command line. What a person can put right ends in one sentence on stderr and exit code 2."""
    signal.signal(signal.SIGTERM, _terminate)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that can't show a character shows another one.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        _run()
    except FreeholdError as error:
        _fail(printable(str(error)), EXIT_FAILED if isinstance(error, EngineError) else EXIT_USER_ERROR)
    except KeyboardInterrupt:
        _fail("interrupted", EXIT_INTERRUPTED)
    except (MemoryError, OSError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        _fail(OUT_OF_MEMORY, EXIT_USER_ERROR)


def _run() -> None:
    try:
        app()
    except SystemExit as leaving:
        # typer ends Ctrl-C like this, without a word.
        if leaving.code == EXIT_INTERRUPTED:
            raise KeyboardInterrupt from None
        raise


def _fail(message: str, code: int) -> NoReturn:
    print(f"freehold: {message}", file=sys.stderr)
    sys.exit(code)


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or "can't start new thread" in str(error)


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    """Leave through every `finally`, so that children end and unfinished files go."""
    sys.exit(EXIT_TERMINATED)
