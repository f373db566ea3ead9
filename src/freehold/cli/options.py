"""Options of the command line, made from the one list of settings in `freehold.resolve`."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from freehold.errors import ConfigError
from freehold.settings import SETTINGS, Setting

ModelArgument = Annotated[
    str | None, typer.Argument(metavar="MODEL", help="Store name, path, or Hugging Face id.", show_default=False)
]
ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="TOML or YAML file with settings.", show_default=False)
]
HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="Folder of the model store; FREEHOLD_HOME sets it too.", show_default=False),
]


class SettingsCommand(TyperCommand):
    """Takes ``--served-model-name a b`` as other servers do, where MODEL stands first and can't be meant by ``b``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread(args))


def spread(arguments: Sequence[str]) -> list[str]:
    """Each value of a list with its flag before it."""
    flags = {setting.flag for setting in SETTINGS if setting.kind.is_list}
    if not arguments or arguments[0].startswith("-"):
        return list(arguments)
    found: list[str] = []
    flag, num_values = "", 0
    for argument in arguments:
        if argument.startswith("-"):
            flag, num_values = (argument if argument in flags else ""), 0
        elif flag:
            found += [flag] if num_values else []
            num_values += 1
        found.append(argument)
    return found


def with_settings(*, serve: bool, model: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command one option for each setting. It receives those that were given as ``flags``, by name.

    Args:
        serve: settings of the HTTP server too.
        model: ``--model`` too, for commands whose argument MODEL may be left out.
    """
    chosen = {f"setting_{s.name}": s for s in SETTINGS if (serve or not s.serve_only) and (model or s.name != "model")}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**arguments: Any) -> None:
            given = {chosen[name].name: arguments.pop(name) for name in chosen}
            command(**arguments, flags={name: text for name, text in given.items() if text not in (None, [])})

        parameters = [
            *(p for p in inspect.signature(command).parameters.values() if p.name != "flags"),
            *(_parameter(name, setting) for name, setting in chosen.items()),
        ]
        # What typer reads. `wraps` copied those of the undecorated command.
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def one_model(argument: str | None, flags: Mapping[str, Any]) -> str | None:
    """The model that was named, as MODEL or with --model.

    Raises:
        ConfigError: two different ones.
    """
    option = flags.get("model")
    if argument is not None and option is not None and argument != option:
        raise ConfigError(f"MODEL is {argument!r} and --model is {option!r}; name one")
    return option if argument is None else argument


def _parameter(name: str, setting: Setting) -> inspect.Parameter:
    text = setting.help[:1].upper() + setting.help[1:] + "."
    default = "" if setting.default is None else f" Default: {setting.default}."
    if setting.is_switch:
        names = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"
        switch = typer.Option(names, help=text + default, show_default=False)
        return inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[bool | None, switch]
        )
    kind: Any = list[str] | None if setting.kind.is_list else str | None
    option = typer.Option(
        *setting.aliases, setting.flag, help=text + default, show_default=False, metavar=setting.kind.metavar
    )
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option])
