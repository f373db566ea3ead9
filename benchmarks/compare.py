"""Freehold and llama.cpp side by side: same model file, token ids, counts and threads; greedy, the end token ignored.

    python benchmarks/compare.py [--llamacpp PYTHON] [--models q4_1,q4_0] [--rows decode128,prefill512] [--pairs 5]

Each engine lives in a process of its own and rests while the other works. Prints medians with lowest and highest, the
ratio, and each engine's share of the roof: what the machine's limits, measured in the same turns, allow for the file's
own bits (`freehold.roofs`). Without --llamacpp, Freehold alone beside its roof.

Models are described in `model_files`. --llamacpp names an interpreter with ``llama-cpp-python==0.3.36``.
"""

import argparse
import contextlib
import datetime
import json
import platform
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from engine_worker import Worker
from model_files import model_file
from offline_rows import ROWS, Row
from pairs import Spread, in_turns, ratios

from freehold.arch.load import read_model
from freehold.arch.sizes import step_weight_bytes
from freehold.files.model import open_model
from freehold.limits import measure_dram, measure_limits
from freehold.machine import read_machine
from freehold.roofs import ModelCost

HERE = Path(__file__).parent


@contextlib.contextmanager
def engines(model: Path, arguments: argparse.Namespace) -> Iterator[dict[str, Worker]]:
    """A worker for each engine, Freehold first."""
    options = ["--threads", str(arguments.threads)]
    ours = [sys.executable, HERE / "engine_freehold.py", model, *options, "--activations", arguments.activations]
    commands = {"freehold": [*ours, "--kv-cache", arguments.kv_cache]}
    if arguments.llamacpp:
        commands["llama.cpp"] = [arguments.llamacpp, HERE / "engine_llamacpp.py", model, *options]
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(Worker(command)) for name, command in commands.items()}


def cost_of(model: Path, activations: str) -> ModelCost:
    """What a step of the model costs, with the file's own bits."""
    with open_model(model) as files:
        spec, weights = read_model(files)
        return ModelCost(spec, step_weight_bytes(spec, weights), "int8" if activations == "int8" else "float")


def measure_row(
    row: Row, workers: Mapping[str, Worker], cost: ModelCost, arguments: argparse.Namespace
) -> dict[str, Any]:
    """All pairs of one row. Memory's speed drifts most, so it takes turns with the engines, and a rate is compared with
    the roof of its own turn."""
    vocab_size = workers["freehold"].description["vocab_size"]

    def measure(worker: Worker) -> Callable[[int], float]:
        return lambda turn: row.rate(worker.run(row.prompts(turn, vocab_size), row.num_output))

    limits = measure_limits(arguments.threads)
    turns = {name: measure(worker) for name, worker in workers.items()}
    rates = in_turns({**turns, "dram": lambda _turn: measure_dram(arguments.threads)}, arguments.pairs)
    dram = rates.pop("dram")
    roofs = [row.roof(cost, replace(limits, dram_bytes_per_s=rate)) for rate in dram]
    result = {
        "row": asdict(row),
        "limits": asdict(replace(limits, dram_bytes_per_s=statistics.median(dram))),
        "dram_bytes_per_s": dram,
        "roofs": roofs,
        "roof": statistics.median(roofs),
        "engines": {name: judged(found, roofs) for name, found in rates.items()},
    }
    if "llama.cpp" in rates:
        each = ratios(rates["freehold"], rates["llama.cpp"])
        result["ratio"] = {"each": each, **asdict(Spread.of(each))}
    return result


def judged(rates: list[float], roofs: list[float]) -> dict[str, Any]:
    """An engine's rates, and its share of the roofs."""
    shares = ratios(rates, roofs)
    return {"rates": rates, **asdict(Spread.of(rates)), "shares": shares, "share": statistics.median(shares)}


def line_of(result: Mapping[str, Any]) -> str:
    """A row as text."""
    cells = [f"{result['row']['name']:12}"]
    for name, found in result["engines"].items():
        rates = f"{found['median']:.0f} ({found['lowest']:.0f} to {found['highest']:.0f})"
        cells.append(f"{name} {rates:24} {found['share']:4.0%} of roof")
    if ratio := result.get("ratio"):
        cells.append(f"ratio {ratio['median']:.2f} ({ratio['lowest']:.2f} to {ratio['highest']:.2f})")
    cells.append(f"roof {result['roof']:.0f}")
    return "  ".join(cells)


def measure_model(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """All rows of one model; prints each as it is done."""
    path = model_file(name, arguments.llamacpp)
    cost = cost_of(path, arguments.activations)
    print(f"{name}: {path.name}, {path.stat().st_size / 1e6:.1f} MB, {cost.weight_bytes / 1e6:.1f} MB read in a step")
    with engines(path, arguments) as workers:
        rows = []
        for row in arguments.rows:
            rows.append(measure_row(row, workers, cost, arguments))
            print(line_of(rows[-1]), flush=True)
        described = {engine: worker.description for engine, worker in workers.items()}
    return {"name": name, "step_weight_bytes": cost.weight_bytes, "engines": described, "rows": rows}


def rows_named(text: str) -> list[Row]:
    """Rows by comma-separated names."""
    if strangers := [name for name in text.split(",") if name not in ROWS]:
        raise argparse.ArgumentTypeError(f"unknown {', '.join(strangers)}; known are {', '.join(ROWS)}")
    return [ROWS[name] for name in text.split(",")]


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="q4_1", help="comma-separated, see above")
    parser.add_argument("--rows", type=rows_named, default=",".join(ROWS), help="comma-separated: " + ", ".join(ROWS))
    parser.add_argument("--llamacpp", type=Path, metavar="PYTHON", help="interpreter with llama-cpp-python")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--activations", choices=("int8", "float"), default="int8")
    parser.add_argument("--kv-cache", default="1g", help="memory for Freehold's keys and values")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured")
    parser.add_argument("--plot", type=Path, metavar="DIR", help="draw bars into DIR (needs the extra `bench`)")
    return parser.parse_args(argv)


def main() -> None:
    arguments = parse()
    machine = read_machine()
    results = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {"processor": machine.processor, "cores": machine.num_cores, "memory_bytes": machine.memory_bytes},
        "python": platform.python_version(),
        "threads": arguments.threads,
        "activations": arguments.activations,
        "models": [measure_model(name, arguments) for name in arguments.models.split(",")],
    }
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if arguments.plot:
        from plot import draw_offline  # loads matplotlib

        draw_offline([results], arguments.plot)


if __name__ == "__main__":
    main()
