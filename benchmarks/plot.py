"""Draws results that `compare.py` and `http_load.py` saved, as SVG.

    python benchmarks/plot.py RESULTS.json… --out docs

Needs the extra `bench` (matplotlib).
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "freehold"  # the same figures give the same file

from matplotlib import pyplot  # noqa: E402  the backend is chosen first

_BAR_WIDTH = 0.38


def draw_offline(results: Sequence[Mapping[str, Any]], out: Path) -> list[Path]:
    """One file a model: each engine's share of the roof, row by row, its tokens a second on the bars. Rows of a model
    may come from several runs."""
    models: dict[str, list[Mapping[str, Any]]] = {}
    for model in (model for result in results for model in result["models"]):
        models.setdefault(model["name"], []).extend(model["rows"])
    return [_draw_model(name, rows, out) for name, rows in models.items()]


def _draw_model(name: str, rows: Sequence[Mapping[str, Any]], out: Path) -> Path:
    figure, axes = pyplot.subplots(figsize=(8, 0.6 + 0.62 * len(rows)))
    for place, engine in enumerate(rows[0]["engines"]):
        found = [row["engines"][engine] for row in rows]
        centers = [index + _BAR_WIDTH * place for index in range(len(rows))]
        bars = axes.barh(centers, [100 * one["share"] for one in found], _BAR_WIDTH, label=engine)
        axes.bar_label(bars, [f"{one['median']:.0f} tok/s" for one in found], padding=3, fontsize=8)
    axes.set_yticks([index + _BAR_WIDTH / 2 for index in range(len(rows))], [row["row"]["name"] for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 118)
    axes.axvline(100, color="grey", linewidth=0.8)
    axes.set_xlabel("% of what the machine allows for the file's bits")
    axes.set_title(f"{name}, offline", fontsize=10)
    axes.legend(fontsize=8, loc="lower right")
    return _save(figure, out / f"performance-offline-{name.replace(':', '-')}.svg")


def draw_http(results: Sequence[Mapping[str, Any]], out: Path) -> list[Path]:
    """Output tokens a second and time to first token over concurrency, a line for each server."""
    figure, (speed, wait) = pyplot.subplots(1, 2, figsize=(9, 3.4))
    for result in results:
        bursts = [level for level in result["levels"] if level["spread_s"] == 0]
        concurrency = [level["concurrency"] for level in bursts]
        speed.plot(concurrency, [level["output_throughput"] for level in bursts], marker="o", label=result["server"])
        wait.plot(concurrency, [level["p99_ttft_ms"] / 1000 for level in bursts], marker="o", label=result["server"])
    for axes, title in ((speed, "output tok/s"), (wait, "time to first token, p99, s")):
        axes.set_xscale("log", base=2)
        axes.set_xticks(concurrency, [str(each) for each in concurrency])
        axes.set_xlabel("requests at once")
        axes.set_title(title, fontsize=10)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    speed.legend(fontsize=8)
    return [_save(figure, out / "performance-http.svg")]


def _save(figure: Any, path: Path) -> Path:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("docs"))
    arguments = parser.parse_args()
    results = [json.loads(path.read_text(encoding="utf-8")) for path in arguments.results]
    drawn = draw_offline([result for result in results if "models" in result], arguments.out)
    if served := [result for result in results if "levels" in result]:
        drawn += draw_http(served, arguments.out)
    for path in drawn:
        print(path)


if __name__ == "__main__":
    main()
