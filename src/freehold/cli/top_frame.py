"""One frame of ``freehold top``: lines of a given width, made from what a server told and told before."""

import textwrap
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from freehold.cli.screen import Line, Span, Style
from freehold.errors import printable
from freehold.serve.live.schema import KV, KeyUse, Latencies, LiveAnswer, RequestLine

NUM_PAST = 60
"""Seconds that lines of the past show."""
NUM_KEYS = 4
_GAP = "  "

_LEVELS, _PLAIN_LEVELS = " ▁▂▃▄▅▆▇█", " .:-=+*#%@"
_STYLES: dict[str, Style] = {"ok": "green", "notice": "cyan", "warning": "yellow", "critical": "alarm"}
_REASONS = {
    "rows": "for rows",
    "tokens": "for a step's tokens",
    "blocks": "for KV blocks",
    "leader": "for a prompt like theirs",
    "grammar": "for a grammar",
    "order": "for their turn",
}
_DURATIONS = (
    ("ttft", "first token"),
    ("tokenize", "  tokenize"),
    ("compile", "  compile"),
    ("queue", "  queue"),
    ("prefill", "  prefill"),
    ("itl", "between tokens"),
    ("decode", "answer"),
    ("e2e", "whole request"),
)


_MAIN_DURATIONS = tuple((name, text) for name, text in _DURATIONS if name in {"ttft", "itl", "e2e"})

MIN_REQUESTS = 3
_TALL = 36
"""Lines of a terminal in which everything is shown."""

_NAME_WIDTH = 12
"""Of figures' names, and what is shown of a request's id at least."""
_WIDE = 80
"""Characters of a terminal from which on longer windows, keys and the past are shown."""
_ALL_PERCENTILES = 48
"""Characters that those of one window take."""
_BARS_FROM = 66
"""Characters that figures take beside their past."""


class Past:
    """What is kept between frames: the last minute of some columns, and the requests that ended.

    Attributes:
        cursor: of the newest answer.
    """

    def __init__(self) -> None:
        self.cursor = 0.0
        self._columns: dict[str, deque[float]] = {}
        self.ended: deque[RequestLine] = deque(maxlen=NUM_PAST)

    def add(self, answer: LiveAnswer) -> None:
        """Take in what is new."""
        self.cursor = answer.cursor
        for name, column in answer.history.fine.columns.items():
            kept = self._columns.setdefault(name, deque(maxlen=NUM_PAST))
            kept.extend(value or 0.0 for value in column)
        self.ended.extend(answer.requests.ended)

    def column(self, name: str) -> Sequence[float]:
        """The last minute, oldest first."""
        return list(self._columns.get(name, ()))


def frame(
    answer: LiveAnswer, past: Past, width: int, height: int, *, plain: bool, url: str = "", trouble: str = ""
) -> list[Line]:
    """All that fits.

    Args:
        width, height: of the terminal, in characters.
        plain: only ASCII can be shown.
        trouble: why the numbers are old.
    """
    lines: list[Line] = [[Span(_title(answer, url), "bold")]]
    if trouble:
        lines += _wrapped(f"these numbers are old: {trouble}", width, "alarm")
    binding = answer.binding
    lines += _wrapped(f"{binding.severity}: {binding.sentence}", width, _STYLES[binding.severity])
    lines += [[], *_figures(answer, past, width, plain=plain)]
    is_tall = height >= _TALL
    lines += [[], *_latencies(answer.latencies, _DURATIONS if is_tall else _MAIN_DURATIONS, width)]
    if is_tall and width >= _WIDE and answer.now.keys:
        lines += [[], *_keys(answer.now.keys[:NUM_KEYS])]
    num_left = height - len(lines) - 2  # an empty line, and the heads of columns
    return [*lines, [], *_requests(answer, past, width, max(MIN_REQUESTS, num_left), plain=plain)]


def _title(answer: LiveAnswer, url: str) -> str:
    server = answer.server
    up = duration(server.uptime_s)
    return f"freehold {server.version}  {server.model} ({server.model_family}, {server.backend})  up {up}  {url}"


def _wrapped(text: str, width: int, style: Style) -> Iterator[Line]:
    for line in textwrap.wrap(text, width):
        yield [Span(line, style)]


def _figures(answer: LiveAnswer, past: Past, width: int, *, plain: bool) -> Iterator[Line]:
    """Numbers of this moment, each with its last minute where the server keeps that."""
    now, limits = answer.now, answer.server.limits
    hits = "-" if now.hit_rate is None else f"{now.hit_rate:.0%}"
    shares = now.step_shares
    rows = [
        ("running", f"{now.running} of {limits.max_num_seqs}, {now.prefilling} in prefill", "running"),
        ("waiting", _waiting(answer), "waiting"),
        ("tokens/s", f"{now.tokens_per_s.output:.0f} out, {now.tokens_per_s.computed:.0f} computed, "
         f"{now.tokens_per_s.cached:.0f} from the cache", "output"),
        ("KV cache", _kv(now.kv), "kv_held"),
        ("prefix hits", f"{hits}, {now.preemptions_per_s:.1f} preemptions/s", "hit_rate"),
        ("engine", f"plan {shares.plan:.0%}, run {shares.run:.0%}, apply {shares.apply:.0%}, idle {shares.idle:.0%}",
         "run"),
        ("server", f"{now.server_cpu:.0%} of a core, {now.num_slow_clients} slow clients, {now.rejected_per_s:.1f} "
         "refused/s", "server_cpu"),
    ]  # fmt: skip
    if (guessed := now.speculation) is not None:
        rows.append(("speculation", f"{guessed.accepted:.0%} right, {guessed.per_step:.2f} tokens a step", "accepted"))
    num_bars = width - _BARS_FROM if width >= _WIDE else 0
    text_width = max(1, width - _NAME_WIDTH - num_bars - 2 * len(_GAP))
    for name, text, column in rows:
        told = bars(past.column(column), num_bars, plain=plain) if num_bars else ""
        for number, part in enumerate(textwrap.wrap(text, text_width)):
            shown = f"{part:{text_width}}{_GAP}{told}" if not number else part
            yield [Span(f"{'' if number else name:{_NAME_WIDTH}}{_GAP}", "bold"), Span(shown)]


def _waiting(answer: LiveAnswer) -> str:
    waiting = answer.now.waiting
    reasons = [f"{number} {text}" for name, text in _REASONS.items() if (number := getattr(waiting, name))]
    return f"{waiting.total}" + (f": {', '.join(reasons)}" if reasons else "")


def _kv(kv: KV) -> str:
    tiers = [
        f"{'' if tier.name == 'ram' else tier.name + ': '}{tier.held / max(1, tier.num_blocks):.0%} held, "
        f"{tier.cached / max(1, tier.num_blocks):.0%} cached, {tier.pinned / max(1, tier.num_blocks):.0%} pinned"
        for tier in kv.tiers
    ]
    return "; ".join(tiers)


def _latencies(windows: Sequence[Latencies], durations: Sequence[tuple[str, str]], width: int) -> Iterator[Line]:
    """Percentiles of the last minute, and the 90th of the longer windows where there is room."""
    minute, later = windows[0], windows[1:] if width >= _WIDE else ()
    shown = ("p50", "p90", "p99", "count") if width >= _ALL_PERCENTILES else ("p50", "p99")
    rows = []
    for name, text in durations:
        found = getattr(minute, name)
        cells = [str(found.count) if each == "count" else duration(getattr(found, f"{each}_s")) for each in shown]
        rows.append((text, *cells, *(duration(getattr(window, name).p90_s) for window in later)))
    heads = ("", *shown, *(f"p90 of {duration(window.window_s)}" for window in later))
    return _table(heads, rows, num_names=1)


def _keys(keys: Iterable[KeyUse]) -> Iterator[Line]:
    heads = ("key", "running", "requests/min", "tokens/min", "requests/h", "tokens/h")
    rows = []
    for use in keys:
        hour_tokens = use.hour_prompt_tokens + use.hour_output_tokens
        numbers = (use.num_running, use.minute_requests, use.minute_tokens, use.hour_requests, hour_tokens)
        rows.append((use.key or "no key", *map(str, numbers)))
    return _table(heads, rows, num_names=1)


def _requests(answer: LiveAnswer, past: Past, width: int, num_lines: int, *, plain: bool) -> Iterator[Line]:
    """The requests that run, oldest first, then those that ended, newest first."""
    columns = [column for column in _COLUMNS if width >= column.from_width]
    id_width = max(_NAME_WIDTH, width - _ALL_COLUMNS)
    live = answer.requests.live[:num_lines]
    shown = (*live, *list(past.ended)[::-1][: num_lines - len(live)])
    rows = []
    for line in shown:
        age_s = max(0.0, answer.now.at - line.at if line.ended_s is None else line.ended_s)
        cells = [column.text(line, age_s)[: column.max_width] for column in columns]
        rows.append((f"{end_of(line.id, id_width, plain=plain):{id_width}}", *cells))
    return _table(
        ("request", *(column.name for column in columns)),
        rows,
        num_names=1 + sum(column.is_name for column in columns),
        styles=["plain" if line.ended_s is None else "dim" for line in shown],
    )


@dataclass(frozen=True, slots=True)
class _Column:
    """Of the table of requests.

    Attributes:
        text: of a request and its age in seconds.
        is_name: and not a number; these come first.
        from_width: shown in terminals of so many characters: numbers aren't cut off.
    """

    name: str
    text: Callable[[RequestLine, float], str]
    is_name: bool = False
    from_width: int = 0
    max_width: int = 11


_COLUMNS = (
    _Column("key", lambda line, _: line.key or "-", is_name=True, from_width=_WIDE, max_width=10),
    _Column("stage", lambda line, _: _stage(line), is_name=True),
    _Column("age", lambda _, age_s: duration(age_s)),
    _Column("prompt", lambda line, _: str(line.num_prompt_tokens), from_width=64),
    _Column("cached", lambda line, _: str(line.num_cached_tokens), from_width=92),
    _Column("out", lambda line, _: str(line.num_output_tokens), from_width=44),
    _Column("first", lambda line, _: duration(line.first_token_s), from_width=54),
    _Column("unread", lambda line, _: duration(line.unread_s) if line.unread_s else "", from_width=_WIDE),
)
_ALL_COLUMNS = 76
"""Characters that these take together."""


def _stage(line: RequestLine) -> str:
    """What it is doing, or how it ended."""
    if line.stage == "ended":
        return line.outcome
    if line.stage == "prefilling":
        return f"prefill {line.num_computed_tokens / max(1, line.num_prompt_tokens):.0%}"
    return line.stage


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], *, num_names: int, styles: Sequence[Style] = ()
) -> Iterator[Line]:
    """Aligned columns: the first so many are names and begin on the left, the others are numbers.

    Args:
        styles: of the rows, if they have any.
    """
    shown = [[printable(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(len(row[column]) for row in shown) for column in range(len(heads))]
    for row, style in zip(shown, ("bold", *(styles or ["plain"] * len(rows))), strict=True):
        cells = [f"{cell:{'<' if column < num_names else '>'}{widths[column]}}" for column, cell in enumerate(row)]
        yield [Span(_GAP.join(cells), style)]


def end_of(name: str, width: int, *, plain: bool) -> str:
    """A name that may be too long. Those of one program differ in their ends."""
    return name if len(name) <= width else ("~" if plain else "…") + name[1 - width :]


def bars(values: Sequence[float], width: int, *, plain: bool) -> str:
    """The newest values as heights, the largest as full height; what is anything is seen."""
    levels = _PLAIN_LEVELS if plain else _LEVELS
    shown = values[-width:]
    most = max(shown, default=0.0)
    if most <= 0:
        return levels[0] * len(shown)
    top = len(levels) - 1
    return "".join(levels[0 if value <= 0 else max(1, round(value / most * top))] for value in shown)


def duration(seconds: float | None) -> str:
    """For people: ``850 µs``, ``12 ms``, ``1.2 s``, ``3 min``, ``2.5 h``, or a dash if it isn't known."""
    if seconds is None:
        return "-"
    for unit_s, name, digits in ((3600, "h", 1), (60, "min", 1), (1, "s", 1), (1e-3, "ms", 0)):
        if seconds >= unit_s:
            return f"{seconds / unit_s:.{digits}f}".removesuffix(".0") + f" {name}"
    return f"{seconds * 1e6:.0f} us"
