"""Naive against cached decoding: what the KV cache is for."""

from freehold.errors import EngineError
from freehold.loadtest.experiments.base import Experiment, Outcome, Setting
from freehold.loadtest.experiments.measured_engine import MeasuredEngine, Work
from freehold.loadtest.report.html import Cell, Table
from freehold.loadtest.report.plot import Line, Plot
from freehold.loadtest.report.scale import Axis

_EXPECT = (
    "Each new token attends to all tokens before it. Their keys and values don't change, so that an engine keeps "
    "them and computes one token a step. Without that cache it would compute the whole context again for each "
    "token: the work grows with the square of the length. Here the naive way is really gone: prefix caching is "
    "off, and each token is a request of its own, whose prompt is all that came before. Expect the same tokens, a "
    "time per token that grows with the context for the naive way and hardly grows for the cached one, and a "
    "ratio that gets worse the longer it goes on."
)
_NUM_LAST = 8


def _run(setting: Setting) -> Outcome:
    num_prompt, num_output = (8, 6) if setting.is_quick else (64, 256)
    with MeasuredEngine(setting, enable_prefix_caching=False) as engine:
        prompt = engine.prompt(num_prompt, "cached decoding")
        engine.ask(engine.prompt(num_prompt, "warm-up"), 4)
        setting.tell(f"cached: {num_output} tokens after {num_prompt}")
        before = engine.work()
        cached = engine.ask(prompt, num_output)
        between = engine.work()
        setting.tell(f"naive: the same {num_output} tokens, each computed from the beginning")
        ids: list[int] = []
        naive_s: list[float] = []
        while len(ids) < num_output:
            one = engine.ask((*prompt, *ids), 1)
            naive_s.append(one.ttft_s)
            ids += one.ids
        after = engine.work()
    if ids != cached.ids:
        raise EngineError("naive and cached decoding gave different tokens; that must not be", code="numeric_error")
    cached_s = [cached.ttft_s, *cached.gaps_s]
    rows = [
        _row("cached", cached_s, _less(between, before)),
        _row("naive", naive_s, _less(after, between)),
    ]
    ratio, last = sum(naive_s) / sum(cached_s), sum(naive_s[-_NUM_LAST:]) / max(sum(cached_s[-_NUM_LAST:]), 1e-9)
    table = Table(
        f"{num_output} tokens after a prompt of {num_prompt}",
        ("", "seconds", "tokens/s", "prefill tokens computed", "decode tokens computed", "ids given"),
        rows,
    )
    contexts = [float(num_prompt + number) for number in range(num_output)]
    plot = Plot(
        "Time per token",
        "Milliseconds that each token took, by the tokens before it.",
        Axis("tokens before it", from_zero=False),
        Axis("ms"),
        [
            Line("naive", list(zip(contexts, (each * 1000 for each in naive_s), strict=True))),
            Line("cached", list(zip(contexts, (each * 1000 for each in cached_s), strict=True))),
        ],
    )
    found = [
        "Both ways gave the same tokens.",
        f"Altogether, naive decoding took {ratio:.1f} times as long as cached decoding"
        + (f"; for the last {_NUM_LAST} tokens, {last:.1f} times as long." if num_output > _NUM_LAST else "."),
    ]
    return Outcome(found, [table], [("time-per-token", plot)])


def _less(later: Work, earlier: Work) -> Work:
    """What was computed in between."""
    return Work(later.prefill - earlier.prefill, later.decode - earlier.decode, later.published - earlier.published)


def _row(name: str, seconds: list[float], work: Work) -> list[Cell]:
    whole_s = sum(seconds)
    return [name, whole_s, len(seconds) / whole_s, work.prefill, work.decode, work.published]


CACHED_DECODING = Experiment("cached-decoding", "Naive against cached decoding", _EXPECT, _run)
