"""``freehold experiment``."""

import sys
from pathlib import Path

import click

from freehold.cli.bench_paths import folder_of_results
from freehold.cli.completion import EXPERIMENT_NAMES, models, words
from freehold.cli.options import PATH
from freehold.errors import ConfigError, shown


@click.command()
@click.argument("name", shell_complete=words((*EXPERIMENT_NAMES, "ls")), help="Of the experiment, or ls for a list.")
@click.option(
    "--model", "-m", default="smollm2", shell_complete=models, help="Name in the model store, path or Hugging Face id."
)
@click.option("--output", type=PATH, default=Path("experiments"), help="Folder for the page and the plots.")
@click.option("--quick", is_flag=True, help="So small that it shows nothing but that it runs.")
@click.option("--threads", "-t", type=click.IntRange(1), help="Threads of the engine.")
def experiment(name: str, model: str, output: Path, quick: bool, threads: int | None) -> None:
    """Measure how inference works, on this machine: each experiment gives a table, a page and plots."""
    from freehold.loadtest.experiments.base import Setting
    from freehold.loadtest.experiments.catalog import EXPERIMENTS, measured, outcome_text, write_outcome

    if name == "ls":
        for each in EXPERIMENTS.values():
            print(f"{each.name}: {each.title}\n  {each.expect}\n")
        return
    if name not in EXPERIMENTS:
        raise ConfigError(f"there is no experiment {shown(name)}; there are: {', '.join(EXPERIMENTS)}")
    chosen = EXPERIMENTS[name]
    folder_of_results("--output", output)
    setting = Setting(model, is_quick=quick, threads=threads, tell=lambda text: print(f"… {text}", file=sys.stderr))
    print(f"{chosen.title}\n\n{chosen.expect}\n")
    outcome = measured(chosen, setting)
    print(outcome_text(outcome))
    for path in write_outcome(chosen, setting, outcome, output):
        print(f"wrote {path}")
