"""Freehold's load tester beside GuideLLM, on the same server, in turns A B B A.

    python benchmarks/load_testers.py --guidellm PROGRAM [--url http://127.0.0.1:8000] [--streams 8] [--requests 80]

PROGRAM is GuideLLM's command (`pip install guidellm` into an environment of its own). Without --url, both measure the
stub server of the tests, whose answers take the same time each; with it, prompts are random words, no two alike, and
answers of different lengths, since requests of one length march in step for a whole run, or don't, by chance.
No two runs meet the same server: what its requests wait for each other differs by several percent. So each run is also
compared with what the server itself says of the same requests in its metrics, under vLLM's names.
GuideLLM asks for usage in every chunk (stream_options.continuous_usage_stats), which not every server takes. Words
differ: GuideLLM's ITL is the TPOT of vLLM and of Freehold.
"""

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

STUB = Path(__file__).parents[1] / "tests" / "loadtest" / "stub.py"
BEHAVIOUR = {"first_token_s": 0.1, "gap_s": 0.02}
NUM_WORDS = 50

ROWS = {  # our key; GuideLLM's metric, its figure, and its unit in ours
    "mean_ttft_ms": ("time_to_first_token_ms", "mean", 1),
    "median_ttft_ms": ("time_to_first_token_ms", "p50", 1),
    "p95_ttft_ms": ("time_to_first_token_ms", "p95", 1),
    "mean_tpot_ms": ("inter_token_latency_ms", "mean", 1),
    "median_tpot_ms": ("inter_token_latency_ms", "p50", 1),
    "mean_e2el_ms": ("request_latency", "mean", 1000),
    "median_e2el_ms": ("request_latency", "p50", 1000),
    "p95_e2el_ms": ("request_latency", "p95", 1000),
    "request_throughput": ("requests_per_second", "mean", 1),
}

OWN = {  # our key; the server's histogram of seconds
    "mean_ttft_ms": "vllm:time_to_first_token_seconds",
    "mean_tpot_ms": "vllm:request_time_per_output_token_seconds",
    "mean_e2el_ms": "vllm:e2e_request_latency_seconds",
}


def write_prompts(path: Path, arguments: argparse.Namespace, seed: int) -> None:
    """Random words, a prompt a line. Lengths of answers, from half of `--output` to half as much again unless the
    stub is asked, are those of every other seed."""
    draw, draw_length = random.Random(seed), random.Random(0)
    spread = arguments.output // 2 if arguments.url else 0
    with path.open("w") as file:
        for _ in range(arguments.requests):
            prompt = " ".join(f"{draw.randrange(10**6)}" for _ in range(NUM_WORDS))
            length = draw_length.randint(arguments.output - spread, arguments.output + spread)
            line = {"prompt": prompt, "output_tokens": length, "output_tokens_count": length}
            file.write(json.dumps(line) + "\n")


def guidellm(url: str, prompts: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """GuideLLM's figures, under our keys."""
    folder = prompts.parent
    backend: dict[str, Any] = {"kind": "openai_http", "target": url, "request_format": "/v1/completions"}
    spec = {
        "backend": {**backend, "validate_backend": False, "extras": {"body": {"ignore_eos": True}}},
        "profile": {"kind": "concurrent", "streams": [arguments.streams]},
        "data": [{"kind": "json_file", "path": str(prompts)}],
        "constraints": [{"kind": "max_requests", "count": arguments.requests}],
        "outputs": [{"kind": "json", "path": str(folder / "guidellm.json")}],
    }
    (folder / "spec.json").write_text(json.dumps({"spec": spec}))
    subprocess.run(
        [arguments.guidellm, "run", "-c", folder / "spec.json", "--disable-console"],
        check=True, stdout=subprocess.DEVNULL, env={**os.environ, "HF_HUB_OFFLINE": "1"}, cwd=folder,
    )  # fmt: skip
    metrics = json.loads((folder / "guidellm.json").read_text())["benchmarks"][0]["metrics"]
    if metrics["request_totals"]["successful"] < arguments.requests:
        raise SystemExit(f"GuideLLM's requests failed: {metrics['request_totals']}")
    return {key: unit * figure(metrics[name]["successful"], which) for key, (name, which, unit) in ROWS.items()}


def figure(summary: Mapping[str, Any], which: str) -> float:
    """A figure of one of GuideLLM's summaries."""
    return float(summary["mean"] if which == "mean" else summary["percentiles"][which])


def freehold(url: str, prompts: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """Ours."""
    result = prompts.parent / "freehold.json"
    data = ["--random-output-len", str(arguments.output)]
    if arguments.url:
        data = ["--dataset-name", "custom", "--dataset-path", str(prompts)]
    subprocess.run(
        [sys.executable, "-m", "freehold", "bench", "--base-url", url, *data,
         "--num-prompts", str(arguments.requests), "--ignore-eos",
         "--max-concurrency", str(arguments.streams), "--num-warmups", "0", "--metrics-path", "", "--quiet",
         "--result-filename", str(result)],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    found = json.loads(result.read_text())
    return {key: float(found[key]) for key in ROWS}


def own_sums(url: str) -> dict[str, tuple[float, float]]:
    """Seconds and requests that the server has counted, by our key; empty if it doesn't tell."""
    try:
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return {}
    values = {line.partition("{")[0]: float(line.split()[-1]) for line in lines if not line.startswith("#")}
    return {
        key: (values[f"{name}_sum"], values[f"{name}_count"]) for key, name in OWN.items() if f"{name}_sum" in values
    }


def own_means(before: dict[str, tuple[float, float]], after: dict[str, tuple[float, float]]) -> dict[str, float]:
    """What the server's requests of one run took, in ms."""
    return {key: (after[key][0] - sums[0]) / (after[key][1] - sums[1]) * 1000 for key, sums in before.items()}


@contextlib.contextmanager
def server(url: str | None) -> Iterator[str]:
    """The server to measure."""
    if url is not None:
        yield url
        return
    command = [sys.executable, str(STUB), "--default", json.dumps(BEHAVIOUR)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as stub:
        assert stub.stdin is not None
        assert stub.stdout is not None
        try:
            yield f"http://127.0.0.1:{stub.stdout.readline().strip()}"
        finally:
            stub.stdin.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--guidellm", required=True, metavar="PROGRAM")
    parser.add_argument("--url")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--requests", type=int, default=80)
    parser.add_argument("--output", type=int, default=64)
    arguments = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {"freehold": [], "guidellm": []}
    own: dict[str, list[dict[str, float]]] = {"freehold": [], "guidellm": []}
    with server(arguments.url) as url, tempfile.TemporaryDirectory() as folder:
        for turn, measure in enumerate((freehold, guidellm, guidellm, freehold)):
            prompts = Path(folder) / f"prompts-{turn}.jsonl"
            write_prompts(prompts, arguments, turn)
            before = own_sums(url)
            found[measure.__name__].append(measure(url, prompts, arguments))
            own[measure.__name__].append(own_means(before, own_sums(url)))
    print(f"{'':20}{'freehold':>22}{'guidellm':>22}{'difference':>12}")
    for key in ROWS:
        ours, theirs = ([run[key] for run in found[name]] for name in ("freehold", "guidellm"))
        print(f"{key:20}{cell(ours)}{cell(theirs)}{fmean(ours) / fmean(theirs) - 1:>12.1%}")
    if own["freehold"][0]:
        print("\nthe same runs by the server's own metrics, and how far each load tester is from them")
        for key in OWN:
            sides = {name: [run[key] for run in own[name]] for name in own}
            off = [fmean(run[key] for run in found[name]) / fmean(sides[name]) - 1 for name in sides]
            print(f"{key:20}{cell(sides['freehold'])}{cell(sides['guidellm'])}{off[0]:>12.1%}{off[1]:>8.1%}")


def cell(values: list[float]) -> str:
    return f"{', '.join(f'{value:.2f}' for value in values):>22}"


if __name__ == "__main__":
    main()
