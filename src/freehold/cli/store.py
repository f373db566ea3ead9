"""``freehold pull``, ``list`` and ``rm``."""

from pathlib import Path
from typing import Annotated

import typer

from freehold import resolve
from freehold.cli.options import HomeOption
from freehold.cli.pulling import pull as pull_model
from freehold.errors import printable
from freehold.settings import DEFAULT_MODEL, format_size

Name = Annotated[str, typer.Argument(metavar="MODEL", help="smollm2, org/name or org/name/file.gguf.")]


def pull(model: Name = DEFAULT_MODEL, home: HomeOption = None) -> None:
    """Fetch a model into the store: smollm2, or org/name from Hugging Face. Goes on where it was interrupted."""
    print(pull_model(model, _home(home)))


def list_models(home: HomeOption = None) -> None:
    """List the models in the store."""
    from freehold.files import store

    where = _home(home)
    models = store.list_models(where)
    if not models:
        print(f"no models in {where}; `freehold pull` fetches the default one")
        return
    width = max(len(model.name) for model in models)
    for model in models:
        row = f"{model.name:{width}}  {format_size(model.size_bytes):>10}  {model.source}  {model.path}"
        print(printable(row))


def rm(model: Name, home: HomeOption = None) -> None:
    """Remove a model from the store."""
    from freehold.files import store

    print(f"removed {model}: {format_size(store.remove(model, _home(home)))} freed")


def _home(home: Path | None) -> Path:
    return resolve.home_directory(home)
