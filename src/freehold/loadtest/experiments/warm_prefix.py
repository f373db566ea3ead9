"""A cold prefix against a warm one: what prefix caching is for."""

from statistics import median

from freehold.loadtest.experiments.base import Experiment, Outcome, Setting
from freehold.loadtest.experiments.measured_engine import MeasuredEngine, Request
from freehold.loadtest.report.html import Cell, Table
from freehold.loadtest.report.plot import Line, Plot
from freehold.loadtest.report.scale import Axis

_EXPECT = (
    "Time to the first token is mostly the prompt's prefill, which grows with the prompt's length. Where an "
    "earlier request began with the same tokens (a system prompt, a document, a conversation so far), their keys "
    "and values are still in the cache, and only what follows is computed. Expect the cold TTFT to grow with the "
    "prefix and the warm one to stay nearly flat, and the engine to say that it reused the whole prefix, up to "
    "the last partly filled block."
)
_NUM_SUFFIX = 16


def _run(setting: Setting) -> Outcome:
    lengths, num_repeats = ([16, 48], 1) if setting.is_quick else ([64, 128, 256, 512, 1024, 2048], 3)
    rows: list[list[Cell]] = []
    cold_ms: list[tuple[float, float]] = []
    warm_ms: list[tuple[float, float]] = []
    with MeasuredEngine(setting) as engine:
        lengths = [each for each in lengths if each + _NUM_SUFFIX < engine.info.max_model_len]
        engine.ask(engine.prompt(32, "warm-up"), 4)
        for length in lengths:
            setting.tell(f"a prefix of {length} tokens, {num_repeats} times cold and warm")
            pairs = [_pair(engine, length, number) for number in range(num_repeats)]
            cold, warm = (median(pair[place].ttft_s for pair in pairs) * 1000 for place in (0, 1))
            cold_ms.append((float(length), cold))
            warm_ms.append((float(length), warm))
            rows.append([
                str(length), cold, warm, f"{cold / warm:.1f}", min(pair[0].num_cached for pair in pairs),
                min(pair[1].num_cached for pair in pairs), length + _NUM_SUFFIX,
            ])  # fmt: skip
    table = Table(
        f"Median TTFT in ms of {num_repeats}; each prompt has {_NUM_SUFFIX} tokens of its own after the prefix",
        ("prefix tokens", "cold", "warm", "ratio", "tokens reused cold", "reused warm", "prompt tokens"),
        rows,
    )
    plot = Plot(
        "TTFT by length of the prefix",
        "A cold prefix is computed, a warm one is reused.",
        Axis("prefix tokens"),
        Axis("TTFT (ms)"),
        [Line("cold", cold_ms, marks=True), Line("warm", warm_ms, marks=True)],
    )
    last = rows[-1]
    found = [
        f"With a prefix of {last[0]} tokens, the first token came after {cold_ms[-1][1]:.0f} ms cold and "
        f"{warm_ms[-1][1]:.0f} ms warm: {last[3]} times as fast. {last[5]} of {last[6]} tokens were reused."
    ]
    return Outcome(found, [table], [("ttft-by-prefix", plot)])


def _pair(engine: MeasuredEngine, length: int, number: int) -> tuple[Request, Request]:
    """A request with a prefix that nobody has used, and another one with the same."""
    prefix = engine.prompt(length, f"prefix {length} {number}")
    cold = engine.ask((*prefix, *engine.prompt(_NUM_SUFFIX, f"first {length} {number}")), 2)
    warm = engine.ask((*prefix, *engine.prompt(_NUM_SUFFIX, f"second {length} {number}")), 2)
    return cold, warm


WARM_PREFIX = Experiment("warm-prefix", "A cold prefix against a warm one", _EXPECT, _run)
