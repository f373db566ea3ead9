"""The flags of ``freehold bench``, spelled as those of ``vllm bench serve`` where it has them."""

import math
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from freehold.cli.bench_datasets import refuse_foreign
from freehold.errors import ConfigError

_LISTS = ("--goodput", "--metadata", "--header", "--timed-trace-columns")


class BenchCommand(TyperCommand):
    """Takes ``--goodput ttft:200 tpot:50``, several values after one flag, and refuses flags of other data sets."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        found: list[str] = []
        flag, num_values = "", 0
        for argument in args:
            if argument.startswith("--"):
                flag, num_values = (argument if argument in _LISTS else ""), 0
            elif flag:
                found += [flag] if num_values else []
                num_values += 1
            found.append(argument)
        return super().parse_args(ctx, found)

    def invoke(self, ctx: Any) -> Any:
        if not any(ctx.params[name] for name in ("show", "compare", "resume")):
            given = (each for each in self.params if ctx.get_parameter_source(each.name).name == "COMMANDLINE")
            refuse_foreign({each.name or "": each.opts[0] for each in given}, ctx.params["dataset_name"])
        return super().invoke(ctx)


def _flag(*names: str, text: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=text, metavar=metavar, show_default=False)


def _finite(param: typer.CallbackParam, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise ConfigError(f"{param.opts[0]} can't be {value}; it is a finite number")
    return value


def _number(*names: str, text: str) -> Any:
    return typer.Option(*names, help=text, show_default=False, callback=_finite)


BaseUrl = Annotated[str | None, _flag(text="Of the server. Default: the one that would run here.")]
Backend = Annotated[str, _flag(text="openai (completions, the default; also vllm) or openai-chat (also vllm-chat).")]
Endpoint = Annotated[str | None, _flag(text="Path of the requests. Default: the backend's.")]
Model = Annotated[str | None, _flag(text="As the server calls it. Default: the first that it lists.")]
Tokenizer = Annotated[
    str | None, _flag(text="tokenizer.json or model, to count tokens if the server doesn't and to make prompts.")
]
DatasetName = Annotated[
    str,
    _flag(
        text="What is asked: random (the default), published, agent, prefix_repetition, multi_turn, or a file: "
        "custom, sharegpt, mooncake, timed_trace, azure, burstgpt, recording."
    ),
]
DatasetPath = Annotated[Path | None, _flag(text="File of the data set; of a recording its folder.")]
RandomInputLen = Annotated[int, _flag(text="Tokens of a random prompt, or of a turn. Default: 256.")]
RandomOutputLen = Annotated[int, _flag(text="Tokens of its answer. Default: 128.")]
RandomRangeRatio = Annotated[float, _number(text="Both differ by up to so much of themselves: 0 (default) to below 1.")]
OutputLen = Annotated[
    int | None,
    _flag(
        "--output-len", "--sharegpt-output-len", "--custom-output-len", text="Tokens of answers to a file's texts. "
        "Default: as long as its own."
    ),
]  # fmt: skip
MaxTurns = Annotated[int, _flag(text="Turns taken of a file's conversation. Default: 1.")]
Verbatim = Annotated[bool, _flag("--verbatim", text="A file's texts as they are, without a mark that defeats caches.")]
PrefixLen = Annotated[int, _flag("--prefix-repetition-prefix-len", text="Tokens that prompts share. Default: 256.")]
SuffixLen = Annotated[int, _flag("--prefix-repetition-suffix-len", text="Tokens of their own. Default: 256.")]
NumPrefixes = Annotated[int, _flag("--prefix-repetition-num-prefixes", text="Prefixes of a point. Default: 10.")]
NumTurns = Annotated[int, _flag(text="Requests of a multi_turn conversation. Default: 5.")]
OpeningLen = Annotated[int, _flag(text="Tokens that all conversations begin with: instructions, tools. Default: 0.")]
Pause = Annotated[float, _number("--pause", text="Mean seconds between turns: thinking, tools at work. Default: 1.")]
PublishedName = Annotated[
    str, _flag("--published", text="Lengths of the published data set: chat (default), code, long-chat, agent.")
]
LengthScale = Annotated[float, _number(text="Published lengths are multiplied by it. Default: 1.")]
TraceColumns = Annotated[
    list[str] | None, _flag("--timed-trace-columns", metavar="NAME=OWN …", text="Own names of a timed trace's columns.")
]
TraceBlockLen = Annotated[int, _flag("--timed-trace-chunk-hash-size", text="Tokens of a hash. Default: 16.")]
TraceUnit = Annotated[
    float, _number("--timed-trace-sec-multiplier", text="Seconds of its time's unit. Default: 0.001.")
]
TraceLengthScale = Annotated[
    float | None, _number(text="A trace's lengths are multiplied by it. Default: until the longest request fits.")
]
TraceSpeed = Annotated[float, _number(text="A trace's time passes so many times as fast. Default: 1.")]
NumPrompts = Annotated[
    int | None, _flag(text="Conversations of each measurement. Default: 100, and at least 4 a slot.")
]
MaxConcurrency = Annotated[
    str | None,
    _flag(
        "--max-concurrency",
        "--concurrency",
        metavar="A,B,…",
        text="Requests at a time, a closed loop for each. With a rate: the most at a time. Default: 1,8,32.",
    ),
]
RequestRate = Annotated[
    str | None, _flag(metavar="A,B,…", text="Requests a second, a point for each; inf for all at once.")
]
Burstiness = Annotated[float, _flag(text="Shape of gaps: 1 (default) is Poisson, less burstier, inf constant.")]
RampUpStrategy = Annotated[str | None, _flag(text="linear or exponential: the rate changes.")]
RampUpStart = Annotated[float | None, _number("--ramp-up-start-rps", text="Rate at the beginning of a ramp.")]
RampUpEnd = Annotated[float | None, _number("--ramp-up-end-rps", text="Rate at its end.")]
DetectSaturation = Annotated[
    bool,
    _flag(
        "--detect-saturation",
        text="Stop a point early, after 30 s at least, if its rate is more than the server can answer.",
    ),
]
TraceTimes = Annotated[bool, _flag("--trace-times", text="Requests start when the data set says.")]
Repeats = Annotated[int, _flag(text="Measurements of each point. Default: 1; from three on, intervals mean more.")]
NumWarmups = Annotated[int, _flag(text="Requests before each measurement that don't count. Default: 1.")]
Seed = Annotated[int | None, _flag(text="Of prompts and starts. Default: another one each time.")]
WarmCache = Annotated[bool, _flag("--warm-cache", text="Ask the same prompts at all points, once before.")]
IgnoreEos = Annotated[bool, _flag("--ignore-eos", text="Answers have exactly the length asked for.")]
Temperature = Annotated[float | None, _number(text="Of sampling. Default: the server's.")]
ExtraBody = Annotated[str | None, _flag(metavar="JSON", text="Further fields of each request.")]
Header = Annotated[list[str] | None, _flag(metavar="NAME=VALUE …", text="Further headers.")]
Stream = Annotated[bool, typer.Option("--stream/--no-stream", help="Stream answers; else only their end is seen.")]
Insecure = Annotated[bool, _flag("--insecure", text="Don't check certificates.")]
RequestTimeout = Annotated[float, _number(text="Seconds that a request may take. Default: 600.")]
MetricsPath = Annotated[str, _flag(text='Path of the server\'s metrics; "" reads none. Default: /metrics.')]
GoodputLimits = Annotated[
    list[str] | None,
    _flag("--goodput", metavar="METRIC:MS …", text="Limits of a good request: ttft:200 tpot:50 e2el:5000."),
]
PercentileMetrics = Annotated[str, _flag(text="Latencies to show. Default: ttft,tpot,itl.")]
MetricPercentiles = Annotated[str, _flag(text="Percentiles to show. Default: 99.")]
SaveResult = Annotated[bool, _flag("--save-result", text="Write the results as JSON.")]
SaveDetailed = Annotated[bool, _flag("--save-detailed", text="The JSON has every single request too.")]
ResultDir = Annotated[Path, _flag(text="Folder of the results, made if need be. Default: here.")]
ResultFilename = Annotated[str | None, _flag(text="Write this JSON; the run's SQLite file lies beside it.")]
Resume = Annotated[
    Path | None,
    _flag(metavar="FILE", text="Go on with an interrupted run: its SQLite file. Its flags count, but for --header."),
]
Label = Annotated[str | None, _flag(text="Of the run, for reports.")]
Metadata = Annotated[list[str] | None, _flag(metavar="KEY=VALUE …", text="Kept with the results.")]
Report = Annotated[Path | None, _flag(metavar="FILE.html", text="Also write the results as a page with plots.")]
WriteTrace = Annotated[
    Path | None,
    _flag(
        metavar="FILE.jsonl",
        text="Measure nothing: write what a synthetic data set would ask at --request-rate as a Mooncake trace.",
    ),
]
Show = Annotated[Path | None, _flag(metavar="RESULT.json", text="Measure nothing: show a saved result.")]
Compare = Annotated[
    tuple[Path, Path] | None, _flag(metavar="A.json B.json", text="Measure nothing: compare two saved results.")
]
Quiet = Annotated[bool, _flag("--quiet", "--disable-tqdm", text="Results only, no progress.")]
