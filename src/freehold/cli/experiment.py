"""``freehold experiment``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from freehold.errors import ConfigError, shown

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the experiment, or ls for a list.")]
Model = Annotated[str, typer.Option("--model", "-m", help="Name in the model store, path or Hugging Face id.")]
Output = Annotated[Path, typer.Option("--output", help="Folder for the page and the plots.")]
Quick = Annotated[bool, typer.Option("--quick", help="So small that it shows nothing but that it runs.")]
Threads = Annotated[int | None, typer.Option("--threads", "-t", min=1, help="Threads of the engine.")]


def experiment(
    name: Name,
    model: Model = "smollm2",
    output: Output = Path("experiments"),
    quick: Quick = False,
    threads: Threads = None,
) -> None:
    """Measure how inference works, on this machine: each experiment gives a table, a page and plots."""
    from freehold.loadtest.experiments.base import Setting
    from freehold.loadtest.experiments.catalog import EXPERIMENTS, outcome_text, write_outcome

    if name == "ls":
        for each in EXPERIMENTS.values():
            print(f"{each.name}: {each.title}\n  {each.expect}\n")
        return
    if name not in EXPERIMENTS:
        raise ConfigError(f"there is no experiment {shown(name)}; there are: {', '.join(EXPERIMENTS)}")
    chosen = EXPERIMENTS[name]
    setting = Setting(model, is_quick=quick, threads=threads, tell=lambda text: print(f"… {text}", file=sys.stderr))
    print(f"{chosen.title}\n\n{chosen.expect}\n")
    outcome = chosen.run(setting)
    print(outcome_text(outcome))
    for path in write_outcome(chosen, setting, outcome, output):
        print(f"wrote {path}")
