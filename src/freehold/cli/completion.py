"""What a shell offers for a value, if it is no file. Looked up while somebody types: quick, and silent if it fails."""

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

EXPERIMENT_NAMES = ("cached-decoding", "warm-prefix", "kv-occupancy", "concurrency", "max-num-seqs")
"""Of `freehold.loadtest.experiments.catalog`, whose import takes longer than a person waits for the Tab key."""


def words(offered: Iterable[str]) -> Complete:
    """Those of some words that begin as what was typed."""

    def complete(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
        return [CompletionItem(word) for word in offered if word.startswith(typed)]

    return complete


def models(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Models of the store; files where none begins so, for a model may be named by its path."""
    found = [CompletionItem(name) for name in stored_models(typed)]
    return found or [CompletionItem(typed, type="file")]


def stored_models(typed: str) -> list[str]:
    """Models whose names begin so; none if the store can't be read."""
    from freehold import resolve
    from freehold.errors import UserError
    from freehold.files import store

    try:
        models = store.list_models(resolve.home_directory())
    except (OSError, UserError):
        return []
    return [model.name for model in models if model.name.startswith(typed)]
