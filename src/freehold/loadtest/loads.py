"""The points of a run, from what flags say of its load."""

from dataclasses import dataclass
from math import isinf
from typing import Literal, get_args

from freehold.errors import ConfigError, shown
from freehold.loadtest.results import Load

Ramp = Literal["linear", "exponential"]

DEFAULT_CONCURRENCIES = (1, 8, 32)


@dataclass(frozen=True, slots=True)
class LoadFlags:
    """What was asked for, as texts where they are lists.

    Attributes:
        max_concurrency: numbers with commas between.
        request_rate: rates with commas between, ``inf`` among them.
        trace_times: the data set's own times count.
        detect_saturation: points end early if the server can't keep up.
    """

    max_concurrency: str | None = None
    request_rate: str | None = None
    burstiness: float = 1.0
    ramp_up_strategy: str | None = None
    ramp_up_start_rps: float | None = None
    ramp_up_end_rps: float | None = None
    trace_times: bool = False
    detect_saturation: bool = False


def read_loads(flags: LoadFlags) -> list[Load]:
    """A load for each point: of a closed loop for each concurrency, or of an open one for each rate.

    Raises:
        ConfigError: flags that contradict each other, or values that are none.
    """
    concurrencies = _numbers(flags.max_concurrency)
    if flags.trace_times or flags.request_rate is not None or flags.ramp_up_strategy is not None:
        if len(concurrencies) > 1:
            raise ConfigError("--max-concurrency takes a list only without a rate; with one, it is the most at a time")
        limit = concurrencies[0] if concurrencies else None
        return [_trace(flags, limit)] if flags.trace_times else _open(flags, limit)
    if flags.ramp_up_start_rps is not None or flags.ramp_up_end_rps is not None:
        raise ConfigError("--ramp-up-start-rps and --ramp-up-end-rps need --ramp-up-strategy")
    if flags.detect_saturation:
        raise ConfigError(
            "--detect-saturation needs a load that comes whether or not the server keeps up: --request-rate, a ramp or "
            "--trace-times; in a closed loop, requests wait for it"
        )
    return [Load(kind="closed", concurrency=each) for each in concurrencies or DEFAULT_CONCURRENCIES]


def _trace(flags: LoadFlags, limit: int | None) -> Load:
    if flags.request_rate is not None or flags.ramp_up_strategy is not None:
        raise ConfigError("--trace-times takes the data set's times, so there can be no rate")
    return Load(kind="trace", max_concurrency=limit)


def _open(flags: LoadFlags, limit: int | None) -> list[Load]:
    if not flags.burstiness > 0:
        raise ConfigError(f"--burstiness can't be {flags.burstiness}; it is more than 0")
    burstiness: float | Literal["inf"] = "inf" if isinf(flags.burstiness) else flags.burstiness
    if flags.ramp_up_strategy is None:
        rates = [_rate(each) for each in (flags.request_rate or "").split(",")]
        return [Load(kind="open", request_rate=rate, burstiness=burstiness, max_concurrency=limit) for rate in rates]
    strategy = next((each for each in get_args(Ramp) if each == flags.ramp_up_strategy), None)
    start, end = flags.ramp_up_start_rps, flags.ramp_up_end_rps
    if strategy is None:
        raise ConfigError(f"--ramp-up-strategy can't be {shown(flags.ramp_up_strategy)}; it is linear or exponential")
    if flags.request_rate is not None:
        raise ConfigError("a ramp has its own rates: leave --request-rate out")
    if not (start and end and start > 0 and end > 0):
        raise ConfigError("a ramp needs --ramp-up-start-rps and --ramp-up-end-rps, both more than 0")
    return [
        Load(
            kind="open", burstiness=burstiness, max_concurrency=limit, ramp_up_strategy=strategy,
            ramp_up_start_rps=start, ramp_up_end_rps=end,
        )
    ]  # fmt: skip


def _numbers(text: str | None) -> list[int]:
    if text is None:
        return []
    try:
        numbers = [int(each) for each in text.split(",")]
    except ValueError:
        numbers = [0]
    if any(each < 1 for each in numbers):
        raise ConfigError(f"--max-concurrency can't be {shown(text)}; it is a number from 1 up, or several with commas")
    return numbers


def _rate(text: str) -> float | Literal["inf"]:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not rate > 0:
        raise ConfigError(f"--request-rate can't be {shown(text)}; it is more than 0 a second, or inf")
    return "inf" if isinf(rate) else rate
