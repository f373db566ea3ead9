"""The ``freehold`` command. Subcommands parse their arguments and hand over; slow imports wait until then."""

import shutil

import click

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
from freehold.cli.options import Commands


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"max_content_width": shutil.get_terminal_size().columns, "show_default": True},
    help="Own your LLM inference: serve, measure, tune and explain a model on your own hardware.",
)
@click.version_option(__version__, message="freehold %(version)s", help="Print the version and stop.")
@click.pass_context
def app(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


for command in (
    serve.serve,
    talk.chat,
    talk.run,
    store.pull,
    store.list_models,
    store.rm,
    synth.synth,
    doctor.doctor,
    bench.bench,
    experiment.experiment,
    limits.limits,
    profile.profile,
    top.top,
    replay.replay,
    usage.usage,
    record.record,
    keys.keys,
):
    app.add_command(command)
