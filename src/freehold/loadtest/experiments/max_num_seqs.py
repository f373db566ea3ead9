"""``--max-num-seqs`` 32 against 128: waiting before a step, or sharing it."""

from freehold.loadtest.comparison import Comparison, Verdict, compare
from freehold.loadtest.experiments.base import Experiment, Outcome, Setting
from freehold.loadtest.experiments.served_model import ServedModel, load_test
from freehold.loadtest.options import BenchOptions, DatasetOptions
from freehold.loadtest.report.comparison_text import verdicts
from freehold.loadtest.report.curves import percentile
from freehold.loadtest.report.distributions import values_ms
from freehold.loadtest.report.html import Cell, Table
from freehold.loadtest.report.plot import Line, Plot, cumulative
from freehold.loadtest.report.scale import Axis
from freehold.loadtest.results import Load, PointResult, RunResult

_EXPECT = (
    "--max-num-seqs is how many requests may share a step. With fewer places than requests, the others wait: "
    "first tokens come late, but whoever has a place gets tokens quickly. With more places all begin at once and "
    "each gets its tokens more slowly, and each holds blocks of the KV cache meanwhile. Throughput grows only as "
    "far as larger steps are cheaper per token, which on a CPU has mostly ended at 32. Expect similar throughput, "
    "a lower TTFT and a higher TPOT with 128. Both servers get the same prompts, so that each request is compared "
    "with itself."
)


def _run(setting: Setting) -> Outcome:
    few, many, num = (1, 4, 8) if setting.is_quick else (32, 128, 128)
    dataset = DatasetOptions(random_input_len=32, random_output_len=24)
    if setting.is_quick:
        dataset = DatasetOptions(random_input_len=8, random_output_len=3)
    runs: list[RunResult] = []
    for places in (few, many):
        with ServedModel(setting, "--max-num-seqs", str(places)) as server:
            setting.tell(f"--max-num-seqs {places}")
            options = BenchOptions(
                base_url=server.url,
                loads=[Load(kind="closed", concurrency=num)],
                num_prompts=num,
                seed=7,
                ignore_eos=True,
                dataset=dataset,
            )
            runs.append(load_test(options, setting))
    comparison = compare(*runs)
    (point,) = comparison.points
    rows: list[list[Cell]] = [_row(places, run.points[0]) for places, run in zip((few, many), runs, strict=True)]
    table = Table(
        f"{num} requests at a time, prompts of {dataset.random_input_len} tokens, answers of "
        f"{dataset.random_output_len}; latencies in ms",
        ("--max-num-seqs", "output tok/s", "TTFT p50", "TTFT p95", "TPOT p50", "E2EL p50", "seconds"),
        rows,
    )
    plots = []
    for metric, title in (("ttft", "TTFT"), ("e2el", "E2EL")):
        lines = [
            Line(f"--max-num-seqs {places}", cumulative(values_ms(one.detail, metric)), steps=True)
            for places, one in ((few, point.a), (many, point.b))
            if one.detail is not None
        ]
        says = f"Share of requests with {title} up to each value."
        plots.append((metric, Plot(f"{title}: distribution", says, Axis(f"{title} (ms)"), Axis("%"), lines)))
    return Outcome(_found(comparison, few, many), [table], plots)


def _row(places: int, point: PointResult) -> list[Cell]:
    wanted = (("ttft", "50"), ("ttft", "95"), ("tpot", "50"), ("e2el", "50"))
    figures = (percentile(point, metric, percent) for metric, percent in wanted)
    return [str(places), point.output_throughput, *figures, point.duration]


def _found(comparison: Comparison, few: int, many: int) -> list[str]:
    (point,) = comparison.points
    means = [each for each in point.differences if each.name.endswith((", mean", "output throughput"))]
    kinds: tuple[Verdict, ...] = ("better", "worse", "unclear", "incomparable")
    said = (verdicts(means, kind) for kind in kinds)
    warnings = (f"{each[0].upper()}{each[1:]}." for each in comparison.warnings)
    return [f"A has {few} places, B {many}.", *warnings, *(each for each in said if each)]


MAX_NUM_SEQS = Experiment("max-num-seqs", "--max-num-seqs 32 against 128", _EXPECT, _run)
