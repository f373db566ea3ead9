"""What an experiment is, and what it gives."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from freehold.loadtest.report.html import Table
from freehold.loadtest.report.plot import Plot


@dataclass(frozen=True, slots=True)
class Setting:
    """Where an experiment runs.

    Attributes:
        model: name in the model store, path or Hugging Face id.
        is_quick: so small that it shows nothing but that it runs.
        threads: of the engine; None takes what the machine has.
        tell: called with what goes on, for who waits.
    """

    model: str
    is_quick: bool = False
    threads: int | None = None
    tell: Callable[[str], None] = lambda _text: None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an experiment found.

    Attributes:
        found: sentences with the measured figures.
        plots: each with the name of its file.
    """

    found: Sequence[str]
    tables: Sequence[Table]
    plots: Sequence[tuple[str, Plot]]


@dataclass(frozen=True, slots=True)
class Experiment:
    """One of them.

    Attributes:
        name: on the command line.
        title: as a heading.
        expect: what to expect, and why.
        run: measures.
    """

    name: str
    title: str
    expect: str
    run: Callable[[Setting], Outcome]
