"""``freehold pull``, ``list`` and ``rm``."""

from pathlib import Path

import click

from freehold import resolve
from freehold.cli.completion import models
from freehold.cli.options import home_option
from freehold.cli.pulling import pull as pull_model
from freehold.errors import ConfigError, printable
from freehold.setting_kinds import format_size
from freehold.settings import DEFAULT_MODEL


@click.command()
@click.argument("model", default=DEFAULT_MODEL, help=f"{DEFAULT_MODEL} (the default), org/name or org/name/file.gguf.")
@home_option
def pull(model: str, home: Path | None) -> None:
    """Fetch a model into the store: smollm2, or org/name from Hugging Face. Goes on where it was interrupted."""
    print(pull_model(model, _home(home)))


@click.command("list")
@home_option
def list_models(home: Path | None) -> None:
    """List the models in the store, and packed weights."""
    from freehold.files import packed_cache, store

    where = _home(home)
    models = store.list_models(where)
    if not models:
        print(f"no models in {where}; `freehold pull` fetches the default one")
    width = max((len(model.name) for model in models), default=0)
    for model in models:
        row = f"{model.name:{width}}  {format_size(model.size_bytes):>10}  {model.source}  {model.path}"
        print(printable(row))
    for packed in packed_cache.list_packed(store.packed_directory(where)):
        print(printable(f"packed weights  {format_size(packed.size_bytes):>10}  {packed.model}  {packed.path}"))


@click.command()
@click.argument("model", required=False, shell_complete=models, help="A name that `freehold list` shows.")
@click.option("--packed", is_flag=True, help="Remove the packed weights of all models; they are made anew when needed.")
@home_option
def rm(model: str | None, packed: bool, home: Path | None) -> None:
    """Remove a model from the store, or packed weights."""
    from freehold.files import packed_cache, store

    if (model is None) != packed:
        raise ConfigError("name either a model to remove, or --packed")
    where = _home(home)
    if model is None:
        freed_bytes = packed_cache.remove_packed(store.packed_directory(where))
        print(f"removed all packed weights: {format_size(freed_bytes)} freed")
    else:
        print(f"removed {model}: {format_size(store.remove(model, where))} freed")


def _home(home: Path | None) -> Path:
    return resolve.home_directory(home)
