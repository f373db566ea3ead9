"""Options that several commands have, and those made from the one list of settings in `freehold.settings`."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click

from freehold.cli.completion import Complete, models, words
from freehold.errors import ConfigError
from freehold.settings import SETTINGS, Setting

PATH = click.Path(path_type=Path)

model_argument = click.argument(
    "model", required=False, shell_complete=models, help="Store name, path, or Hugging Face id."
)
config_option = click.option("--config", type=PATH, help="TOML or YAML file with settings.")
home_option = click.option("--home", type=PATH, help="Folder of the model store; FREEHOLD_HOME sets it too.")

_LISTS = {setting.flag for setting in SETTINGS if setting.kind.is_list}


class Commands(click.Group):
    """Lists its commands in the order in which they were added, and not by the alphabet."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands)


class SettingsCommand(click.Command):
    """Takes ``--served-model-name a b`` as other servers do, where MODEL stands first and can't be meant by ``b``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_model_first = bool(args) and not args[0].startswith("-")
        return super().parse_args(ctx, spread(args, _LISTS) if is_model_first else args)


def spread(arguments: Sequence[str], lists: Collection[str]) -> list[str]:
    """Each value of a list with its flag before it.

    Args:
        lists: flags after which several values may stand.
    """
    found: list[str] = []
    flag, num_values = "", 0
    for argument in arguments:
        if argument.startswith("-"):
            flag, num_values = (argument if argument in lists else ""), 0
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
            command(**arguments, flags={name: value for name, value in given.items() if value not in (None, ())})

        decorated: Callable[..., None] = run
        for name, setting in reversed(chosen.items()):  # of decorators, the first is applied last
            decorated = _option(name, setting)(decorated)
        return decorated

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


def _option(name: str, setting: Setting) -> Callable[[Callable[..., None]], Callable[..., None]]:
    text = setting.help[:1].upper() + setting.help[1:] + "."
    if setting.default is not None:
        text += f" Default: {setting.default}."
    if setting.is_switch:
        names = f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"
        return click.option(names, name, default=None, help=text)
    return click.option(
        *setting.aliases,
        setting.flag,
        name,
        help=text,
        metavar=setting.kind.metavar,
        multiple=setting.kind.is_list,
        shell_complete=_completion(setting),
    )


def _completion(setting: Setting) -> Complete | None:
    if setting.name == "model":
        return models
    return words(setting.kind.choices) if setting.kind.choices else None
