"""Whether two runs asked the same kind of work, so that what differs between them is the servers'."""

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from freehold.errors import shown
from freehold.loadtest.results import RunFacts, RunResult

_MEANINGS = {
    "backend": "endpoint",
    "is_stream": "streaming",
    "ignore_eos": "--ignore-eos",
    "warm_cache": "--warm-cache",
    "fields": "fields of requests",
}
"""Arguments of a run that fix what its requests ask beside the data set."""


def other_work(a: RunResult, b: RunResult) -> str | None:
    """What the runs asked that isn't the same, in words; None if only seeds, and numbers of requests, differ."""
    found = "; ".join(_differing(a.facts, b.facts))
    if not found:
        return None
    return (
        f"the runs asked different work ({found}), so that their figures say nothing about which server is better; "
        "measure both with the same flags"
    )


def _differing(a: RunFacts, b: RunFacts) -> Iterator[str]:
    if a.dataset != b.dataset:
        yield f"data set {a.dataset} and {b.dataset}"
        return
    ours, theirs = (_of_dataset(each.arguments) for each in (a, b))
    for name in sorted({*ours, *theirs}):
        if ours.get(name) != theirs.get(name):
            yield f"{name} {shown(ours.get(name))} and {shown(theirs.get(name))}"
    for name, meaning in _MEANINGS.items():
        values = [each.arguments.get(name) for each in (a, b)]
        if None not in values and values[0] != values[1]:
            yield f"{meaning} {shown(values[0])} and {shown(values[1])}"


def _of_dataset(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The data set's options; of its path the name alone, as the same file may lie elsewhere."""
    dataset = dict(arguments.get("dataset") or {})
    if isinstance(dataset.get("path"), str):
        dataset["path"] = PurePath(dataset["path"]).name
    return dataset
