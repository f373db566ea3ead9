"""Workloads by the name of their data set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from freehold.errors import ConfigError, shown
from freehold.loadtest.options import DatasetOptions
from freehold.loadtest.workloads.base import Workload
from freehold.loadtest.workloads.random import RandomWorkload


@dataclass(frozen=True, slots=True)
class Setting:
    """What workloads may need to know of the server.

    Attributes:
        takes_ids: prompts may be token ids.
        vocab_size: None if nobody tells.
    """

    takes_ids: bool
    vocab_size: int | None = None


def make_workload(options: DatasetOptions, setting: Setting) -> Workload:
    """The workload that options name.

    Raises:
        ConfigError: there is none of that name, or its options or files are of no use.
    """
    if options.name not in _MAKERS:
        raise ConfigError(f"--dataset-name can't be {shown(options.name)}; it is one of {', '.join(sorted(_MAKERS))}")
    return _MAKERS[options.name](options, setting)


def _random(options: DatasetOptions, setting: Setting) -> Workload:
    return RandomWorkload(
        options.random_input_len, options.random_output_len, setting.vocab_size if setting.takes_ids else None
    )


_MAKERS: Mapping[str, Callable[[DatasetOptions, Setting], Workload]] = {"random": _random}
