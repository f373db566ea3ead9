"""The flags of ``freehold bench``, spelled as those of ``vllm bench serve`` where it has them."""

import math
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from freehold.cli.bench_datasets import DATASETS_OF, refuse_foreign
from freehold.cli.completion import words
from freehold.cli.options import PATH, spread

_LISTS = ("--goodput", "--metadata", "--header", "--timed-trace-columns")


class BenchCommand(click.Command):
    """Takes ``--goodput ttft:200 tpot:50``, several values after one flag, and refuses flags of other data sets."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread(args, _LISTS))

    def invoke(self, ctx: click.Context) -> Any:
        if not any(ctx.params[name] for name in ("show", "compare", "resume")):
            given = (each for each in self.params if ctx.get_parameter_source(each.name) is ParameterSource.COMMANDLINE)
            refuse_foreign({each.name: each.opts[0] for each in given}, ctx.params["dataset_name"])
        return super().invoke(ctx)


class _Finite(click.types.FloatParamType):
    """A number, and neither infinity nor what is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{number} is no finite number.", param, ctx)
        return number


_FINITE = _Finite()

FLAGS: tuple[click.Option, ...] = (
    click.Option(["--base-url"], help="Of the server. Default: the one that would run here."),
    click.Option(
        ["--backend"], default="openai", help="openai (completions; also vllm) or openai-chat (also vllm-chat)."
    ),
    click.Option(["--endpoint"], help="Path of the requests. Default: the backend's."),
    click.Option(["--model"], help="As the server calls it. Default: the first that it lists."),
    click.Option(
        ["--tokenizer"], help="tokenizer.json or model, to count tokens if the server doesn't and to make prompts."
    ),
    click.Option(
        ["--dataset-name"],
        shell_complete=words(sorted({name for names in DATASETS_OF.values() for name in names})),
        default="random",
        help="What is asked: random, published, agent, prefix_repetition, multi_turn, or a file: "
        "custom, sharegpt, mooncake, timed_trace, azure, burstgpt, recording.",
    ),
    click.Option(["--dataset-path"], type=PATH, help="File of the data set; of a recording its folder."),
    click.Option(["--random-input-len"], type=int, default=256, help="Tokens of a random prompt, or of a turn."),
    click.Option(["--random-output-len"], type=int, default=128, help="Tokens of its answer."),
    click.Option(
        ["--random-range-ratio"],
        type=_FINITE,
        default=0.0,
        help="Both differ by up to so much of themselves: 0 to below 1.",
    ),
    click.Option(
        ["--output-len", "--sharegpt-output-len", "--custom-output-len"],
        type=int,
        help="Tokens of answers to a file's texts. Default: as long as its own.",
    ),
    click.Option(["--max-turns"], type=int, default=1, help="Turns taken of a file's conversation."),
    click.Option(["--verbatim"], is_flag=True, help="A file's texts as they are, without a mark that defeats caches."),
    click.Option(
        ["--prefix-repetition-prefix-len", "prefix_len"], type=int, default=256, help="Tokens that prompts share."
    ),
    click.Option(["--prefix-repetition-suffix-len", "suffix_len"], type=int, default=256, help="Tokens of their own."),
    click.Option(
        ["--prefix-repetition-num-prefixes", "num_prefixes"], type=int, default=10, help="Prefixes of a point."
    ),
    click.Option(["--num-turns"], type=int, default=5, help="Requests of a multi_turn conversation."),
    click.Option(
        ["--opening-len"], type=int, default=0, help="Tokens that all conversations begin with: instructions, tools."
    ),
    click.Option(["--pause"], type=_FINITE, default=1.0, help="Mean seconds between turns: thinking, tools at work."),
    click.Option(
        ["--published"], default="chat", help="Lengths of the published data set: chat, code, long-chat, agent."
    ),
    click.Option(["--length-scale"], type=_FINITE, default=1.0, help="Published lengths are multiplied by it."),
    click.Option(
        ["--timed-trace-columns"], metavar="NAME=OWN …", multiple=True, help="Own names of a timed trace's columns."
    ),
    click.Option(["--timed-trace-chunk-hash-size"], type=int, default=16, help="Tokens of a hash."),
    click.Option(["--timed-trace-sec-multiplier"], type=_FINITE, default=0.001, help="Seconds of its time's unit."),
    click.Option(
        ["--trace-length-scale"],
        type=_FINITE,
        help="A trace's lengths are multiplied by it. Default: until the longest request fits.",
    ),
    click.Option(["--trace-speed"], type=_FINITE, default=1.0, help="A trace's time passes so many times as fast."),
    click.Option(
        ["--num-prompts"], type=int, help="Conversations of each measurement. Default: 100, and at least 4 a slot."
    ),
    click.Option(
        ["--max-concurrency", "--concurrency"],
        metavar="A,B,…",
        help="Requests at a time, a closed loop for each. With a rate: the most at a time. Default: 1,8,32.",
    ),
    click.Option(["--request-rate"], metavar="A,B,…", help="Requests a second, a point for each; inf for all at once."),
    click.Option(
        ["--burstiness"], type=float, default=1.0, help="Shape of gaps: 1 is Poisson, less burstier, inf constant."
    ),
    click.Option(["--ramp-up-strategy"], help="linear or exponential: the rate changes."),
    click.Option(["--ramp-up-start-rps"], type=_FINITE, help="Rate at the beginning of a ramp."),
    click.Option(["--ramp-up-end-rps"], type=_FINITE, help="Rate at its end."),
    click.Option(
        ["--detect-saturation"],
        is_flag=True,
        help="Stop a point early, after 30 s at least, if its rate is more than the server can answer.",
    ),
    click.Option(["--trace-times"], is_flag=True, help="Requests start when the data set says."),
    click.Option(
        ["--repeats"], type=int, default=1, help="Measurements of each point; from three on, intervals mean more."
    ),
    click.Option(["--num-warmups"], type=int, default=1, help="Requests before each measurement that don't count."),
    click.Option(["--seed"], type=int, help="Of prompts and starts. Default: another one each time."),
    click.Option(["--warm-cache"], is_flag=True, help="Ask the same prompts at all points, once before."),
    click.Option(["--ignore-eos"], is_flag=True, help="Answers have exactly the length asked for."),
    click.Option(["--temperature"], type=_FINITE, help="Of sampling. Default: the server's."),
    click.Option(["--extra-body"], metavar="JSON", help="Further fields of each request."),
    click.Option(["--header"], metavar="NAME=VALUE …", multiple=True, help="Further headers."),
    click.Option(["--stream/--no-stream"], default=True, help="Stream answers; else only their end is seen."),
    click.Option(["--insecure"], is_flag=True, help="Don't check certificates."),
    click.Option(["--request-timeout"], type=_FINITE, default=600.0, help="Seconds that a request may take."),
    click.Option(["--metrics-path"], default="/metrics", help='Path of the server\'s metrics; "" reads none.'),
    click.Option(
        ["--goodput"],
        metavar="METRIC:MS …",
        multiple=True,
        help="Limits of a good request: ttft:200 tpot:50 e2el:5000.",
    ),
    click.Option(["--percentile-metrics"], default="ttft,tpot,itl", help="Latencies to show."),
    click.Option(["--metric-percentiles"], default="99", help="Percentiles to show."),
    click.Option(["--save-result"], is_flag=True, help="Write the results as JSON."),
    click.Option(["--save-detailed"], is_flag=True, help="The JSON has every single request too."),
    click.Option(["--result-dir"], type=PATH, default=Path(), help="Folder of the results, made if need be."),
    click.Option(["--result-filename"], help="Write this JSON; the run's SQLite file lies beside it."),
    click.Option(
        ["--resume"],
        metavar="FILE",
        type=PATH,
        help="Go on with an interrupted run: its SQLite file. Its flags count, but for --header.",
    ),
    click.Option(["--label"], help="Of the run, for reports."),
    click.Option(["--metadata"], metavar="KEY=VALUE …", multiple=True, help="Kept with the results."),
    click.Option(["--report"], metavar="FILE.html", type=PATH, help="Also write the results as a page with plots."),
    click.Option(
        ["--write-trace"],
        type=PATH,
        metavar="FILE.jsonl",
        help="Measure nothing: write what a synthetic data set would ask at --request-rate as a Mooncake trace.",
    ),
    click.Option(["--show"], metavar="RESULT.json", type=PATH, help="Measure nothing: show a saved result."),
    click.Option(
        ["--compare"], metavar="A.json B.json", type=(PATH, PATH), help="Measure nothing: compare two saved results."
    ),
    click.Option(["--quiet", "--disable-tqdm"], is_flag=True, help="Results only, no progress."),
)
