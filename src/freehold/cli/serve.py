"""``freehold serve``."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from freehold import logs, resolve
from freehold.cli.options import SettingsCommand, config_option, model_argument, one_model, with_settings
from freehold.cli.pulling import with_default_model
from freehold.cli.settings_table import settings_table
from freehold.errors import ModelNotFoundError

if TYPE_CHECKING:
    from freehold.engine.remote import ProcessEngine


@click.command(cls=SettingsCommand)
@model_argument
@config_option
@click.option("--show-config", is_flag=True, help="Print every setting and where it came from, and stop.")
@with_settings(serve=True)
def serve(model: str | None, config: Path | None, show_config: bool, flags: dict[str, Any]) -> None:
    """Serve a model behind an OpenAI-compatible HTTP API. Without MODEL: SmolLM2-135M-Instruct, fetched if missing."""
    flags = {**flags, "model": one_model(model, flags)}
    if show_config:
        print(settings_table(_settings(flags, config)))
        return
    with ExitStack() as running:
        engine = None
        if resolve.lookup("engine", flags, config).value == "process":
            from freehold.engine.remote import ProcessEngine

            # Python starts there while the settings are worked out here.
            engine = running.enter_context(ProcessEngine())
        resolved = with_default_model(resolve.serve_config, flags, config)
        _serve(resolved, engine)


def _settings(flags: Mapping[str, Any], config: Path | None) -> Mapping[str, resolve.Value]:
    """Every setting; of the default model also while it isn't there."""
    try:
        return resolve.serve_config(flags, config).values
    except ModelNotFoundError:
        if resolve.lookup("model", flags, config).source != "default":
            raise
        return resolve.settings_without_model(flags, config)


def _serve(resolved: resolve.Resolved, engine: "ProcessEngine | None") -> None:
    if engine is not None:
        engine.begin(resolved.engine, resolved.serve.log_level, resolved.serve.log_format)
    logs.configure(resolved.serve.log_level, resolved.serve.log_format)
    from freehold.serve.server import serve as run_server

    run_server(resolved.engine, resolved.serve, engine)
