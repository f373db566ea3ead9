"""The KV cache as requests grow and after they end."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from freehold.errors import UserError
from freehold.loadtest.experiments.base import Experiment, Outcome, Setting
from freehold.loadtest.experiments.measured_engine import MeasuredEngine, Request
from freehold.loadtest.report.html import Cell, Table
from freehold.loadtest.report.plot import Line, Plot, Rule, thinned
from freehold.loadtest.report.scale import Axis

_EXPECT = (
    "A request holds keys and values of every token that it has, in blocks of fixed size: its prompt's at once, "
    "and one block more each time its answer has filled the last. Expect stairs while requests run, and a fall "
    "when each ends. The fall isn't to zero: blocks of ended requests stay, held by nobody, for whoever begins "
    "with the same tokens, and go when others need them. So a full cache is no bad sign; a cache full of *held* "
    "blocks is."
)
_EVERY_S = 0.02
_SMALL_BYTES = 64 << 20
_GAP_S = 0.15  # between starts


@dataclass(frozen=True, slots=True)
class _Sample:
    """The cache at one moment, in blocks."""

    at_s: float
    num_running: int
    held: int
    cached: int


def _run(setting: Setting) -> Outcome:
    num_requests, num_prompt, num_output = (2, 24, 300) if setting.is_quick else (6, 96, 320)
    with _engine(setting, num_prompt + num_output) as engine:
        engine.ask(engine.prompt(8, "warm-up"), 2)
        samples: list[_Sample] = []
        began_s = perf_counter()
        requests: list[Request] = []
        setting.tell(f"{num_requests} requests of {num_prompt} tokens and answers of {num_output}, one after the other")
        for number in range(num_requests):
            requests.append(engine.submit(engine.prompt(num_prompt, f"occupancy {number}"), num_output))
            _watch(engine, samples, began_s, requests[-1:], at_most_s=_GAP_S)
        _watch(engine, samples, began_s, requests)
        ended_s = perf_counter() - began_s
        _watch(engine, samples, began_s, (), at_most_s=_GAP_S)
        info = engine.info
    for request in requests:
        request.wait()
    most = max(samples, key=lambda each: each.held)
    last = samples[-1]
    rows: list[list[Cell]] = [
        [name, each.at_s, each.num_running, each.held, each.cached, info.num_blocks - each.held - each.cached]
        for name, each in (("at the beginning", samples[0]), ("when most was held", most), ("after the end", last))
    ]
    table = Table(
        f"Blocks of {info.block_size} tokens, of {info.num_blocks}",
        ("", "s", "requests running", "held", "cached, held by nobody", "free"),
        rows,
    )
    plot = Plot(
        "Blocks of the KV cache",
        "What running requests hold, and what is kept of ended ones.",
        Axis("seconds"),
        Axis("blocks"),
        [
            Line("held", thinned([(each.at_s, float(each.held)) for each in samples], 500), steps=True),
            Line("held or cached", thinned([(each.at_s, float(each.held + each.cached)) for each in samples], 500),
                 steps=True),
        ],
        rules=[Rule("all requests ended", x=ended_s)],
    )  # fmt: skip
    each_needs = -(-(num_prompt + num_output) // info.block_size)
    found = [
        f"At most {most.held} of {info.num_blocks} blocks were held, by {most.num_running} requests that need "
        f"{each_needs} blocks each at their end.",
        f"After the last request had ended, {last.held} blocks were held and {last.cached} were still cached.",
    ]
    return Outcome(found, [table], [("blocks", plot)])


def _engine(setting: Setting, max_model_len: int) -> MeasuredEngine:
    """With a small cache, so that its end is in the picture; if the model needs more, with the default one."""
    try:
        return MeasuredEngine(setting, max_model_len=max_model_len, kv_cache_memory_bytes=_SMALL_BYTES)
    except UserError:
        return MeasuredEngine(setting, max_model_len=max_model_len)


def _watch(
    engine: MeasuredEngine,
    samples: list[_Sample],
    began_s: float,
    requests: Sequence[Request],
    at_most_s: float = 600.0,
) -> None:
    """Sample until the requests have ended (or, without any, for the whole time)."""
    until_s = perf_counter() + at_most_s
    while perf_counter() < until_s and not (requests and all(each.done.is_set() for each in requests)):
        state = engine.state()
        samples.append(_Sample(perf_counter() - began_s, state.num_running, state.kv.held, state.kv.cached))
        time.sleep(_EVERY_S)


KV_OCCUPANCY = Experiment("kv-occupancy", "The KV cache as requests grow and after they end", _EXPECT, _run)
