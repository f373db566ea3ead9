"""More requests at a time: throughput, latency, and the knee."""

from freehold.loadtest.experiments.base import Experiment, Outcome, Setting
from freehold.loadtest.experiments.served_model import ServedModel, load_test
from freehold.loadtest.knee import knee
from freehold.loadtest.options import BenchOptions, DatasetOptions
from freehold.loadtest.report.curves import percentile
from freehold.loadtest.report.html import Cell, Table
from freehold.loadtest.report.plot import Callout, Line, Plot
from freehold.loadtest.report.scale import Axis
from freehold.loadtest.results import Load, PointResult

_EXPECT = (
    "One request at a time leaves the machine waiting: each step reads all weights to compute one token. A step "
    "with more requests reads them once for all, so that throughput grows, nearly for free, until arithmetic "
    "becomes the limit. From that knee on, more requests share the same tokens a second: throughput stays, and "
    "latencies grow in proportion. Beyond --max-num-seqs requests also wait before they begin, which shows in "
    "TTFT. Prompts are all different, so that no prefix cache flatters the figures. On a CPU the knee comes "
    "early, since there is less arithmetic to spare beside each byte that is read."
)


def _run(setting: Setting) -> Outcome:
    levels, dataset = [1, 8, 32, 64], DatasetOptions(random_input_len=64, random_output_len=32)
    if setting.is_quick:
        levels, dataset = [1, 2, 4], DatasetOptions(random_input_len=8, random_output_len=3)
    points: list[PointResult] = []
    with ServedModel(setting) as server:
        for level in levels:
            options = BenchOptions(
                base_url=server.url,
                loads=[Load(kind="closed", concurrency=level)],
                num_prompts=max(2 * level, 4),
                seed=level,  # other prompts at each level
                ignore_eos=True,
                dataset=dataset,
            )
            points += load_test(options, setting).points
    at_knee = knee(points)
    rows: list[list[Cell]] = [
        [
            point.load.label, point.completed, point.output_throughput, *(
                percentile(point, metric, percent)
                for metric, percent in (("ttft", "50"), ("ttft", "95"), ("tpot", "50"), ("e2el", "50"))
            ),
            None if point.hit_rate is None else f"{point.hit_rate:.1%}",
            "knee" if number == at_knee else "",
        ]
        for number, point in enumerate(points)
    ]  # fmt: skip
    table = Table(
        f"Prompts of {dataset.random_input_len} tokens, answers of {dataset.random_output_len}; latencies in ms",
        ("load", "requests", "output tok/s", "TTFT p50", "TTFT p95", "TPOT p50", "E2EL p50", "cache hits", ""),
        rows,
        frozenset() if at_knee is None else frozenset({at_knee}),
    )
    return Outcome(_found(points, at_knee, is_quick=setting.is_quick), [table], _plots(points, at_knee))


def _plots(points: list[PointResult], at_knee: int | None) -> list[tuple[str, Plot]]:
    levels = [float(point.load.concurrency or 0) for point in points]
    output = [(level, point.output_throughput) for level, point in zip(levels, points, strict=True)]
    axis = Axis("requests at a time", is_log=True)
    callouts = [] if at_knee is None else [Callout("knee", output[at_knee])]
    throughput = Plot("Throughput by concurrency", "Output tokens per second of all requests together.", axis,
                      Axis("output tokens/s"), [Line("output", output, marks=True)], callouts=callouts)  # fmt: skip
    latencies = [
        Line(name, [(level, value) for level, point in zip(levels, points, strict=True)
                    if (value := percentile(point, metric, "50")) is not None], marks=True)
        for name, metric in (("TTFT p50", "ttft"), ("TPOT p50", "tpot"), ("E2EL p50", "e2el"))
    ]  # fmt: skip
    latency = Plot("Latency by concurrency", "What each request has of it.", axis, Axis("ms", is_log=True), latencies)
    return [("throughput", throughput), ("latency", latency)]


def _found(points: list[PointResult], at_knee: int | None, *, is_quick: bool) -> list[str]:
    first, last = points[0], points[-1]
    gain = last.output_throughput / first.output_throughput
    waits = (percentile(last, "ttft", "50") or 0.0) / (percentile(first, "ttft", "50") or 1.0)
    if is_quick:
        where = "--quick is too short to tell where the knee is."
    elif at_knee is None:
        where = "These levels show no knee."
    else:
        where = f"The knee is at {points[at_knee].load.label}."
    return [
        f"{last.load.label} gave {gain:.1f} times the tokens a second of {first.load.label}, and first tokens came "
        f"{waits:.1f} times as late.",
        where,
    ]


CONCURRENCY = Experiment("concurrency", "More requests at a time, and the knee", _EXPECT, _run)
