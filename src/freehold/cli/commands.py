"""The ``freehold`` command. Subcommands parse their arguments and hand over; slow imports wait until then."""

import shutil
from typing import Annotated

import typer

from freehold import __version__
from freehold.cli import (
    bench,
    doctor,
    experiment,
    keys,
    limits,
    profile,
    record,
    replay,
    serve,
    store,
    synth,
    talk,
    top,
    usage,
)
from freehold.cli.bench_flags import BenchCommand
from freehold.cli.options import SettingsCommand

app = typer.Typer(
    name="freehold",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": shutil.get_terminal_size().columns},
    help="Own your LLM inference: serve, measure, tune and explain a model on your own hardware.",
)
app.command(cls=SettingsCommand)(serve.serve)
app.command()(talk.chat)
app.command()(talk.run)
app.command()(store.pull)
app.command("list")(store.list_models)
app.command()(store.rm)
app.command()(synth.synth)
app.command()(doctor.doctor)
app.command(cls=BenchCommand)(bench.bench)
app.command()(experiment.experiment)
app.command()(limits.limits)
app.command()(profile.profile)
app.command()(top.top)
app.add_typer(record.app, name="record")
app.command()(replay.replay)
app.add_typer(keys.app, name="keys")
app.command()(usage.usage)


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
