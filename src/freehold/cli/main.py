"""The ``freehold`` command. Subcommands parse their arguments and hand over; slow imports wait until then."""

import sys
from typing import Annotated

import typer

from freehold import __version__
from freehold.cli import doctor, serve, store, synth, talk
from freehold.errors import EngineError, FreeholdError, printable

EXIT_FAILED = 1
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="freehold",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
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
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Own your LLM inference."""


def main() -> None:
    """Run the command line. What a person can put right ends in one sentence on stderr and exit code 2."""
    try:
        app()
    except FreeholdError as error:
        print(f"freehold: {printable(str(error))}", file=sys.stderr)
        sys.exit(EXIT_FAILED if isinstance(error, EngineError) else EXIT_USER_ERROR)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
