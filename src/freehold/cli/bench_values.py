"""Values of the flags of ``freehold bench``, from their texts."""

from collections.abc import Sequence
from typing import Any, get_args

import msgspec

from freehold.errors import ConfigError, shown
from freehold.foreign_json import NOT_JSON
from freehold.loadtest.options import Backend
from freehold.loadtest.results import Metric


def at_least(flag: str, number: int, least: int) -> int:
    """The number.

    Raises:
        ConfigError: it is less.
    """
    if number < least:
        raise ConfigError(f"{flag} can't be {number}; it is at least {least}")
    return number


def read_backend(text: str) -> Backend:
    """The kind of requests; vLLM's other names for the same are known.

    Raises:
        ConfigError: another one.
    """
    names: dict[str, Backend] = {"vllm": "openai", "vllm-chat": "openai-chat", "openai": "openai"}
    names["openai-chat"] = "openai-chat"
    if text not in names:
        raise ConfigError(f"--backend can't be {shown(text)}; it is openai (or vllm) or openai-chat (or vllm-chat)")
    return names[text]


def read_metrics(text: str) -> tuple[Metric, ...]:
    """Latencies with commas between.

    Raises:
        ConfigError: an unknown one.
    """
    names = [each.strip() for each in text.split(",") if each.strip()]
    known = get_args(Metric)
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(f"--percentile-metrics can't be {shown(unknown[0])}; it is any of {', '.join(known)}")
    return tuple(metric for metric in known if metric in names)


def read_percents(text: str) -> tuple[float, ...]:
    """Percents with commas between.

    Raises:
        ConfigError: one that isn't between 0 and 100.
    """
    try:
        percents = [float(each) for each in text.split(",")]
    except ValueError:
        percents = [0.0]
    if not all(0 < each < 100 for each in percents):
        raise ConfigError(f"--metric-percentiles can't be {shown(text)}; they lie between 0 and 100, as in 50,99")
    return tuple(percents)


def read_object(text: str | None) -> dict[str, Any]:
    """A JSON object.

    Raises:
        ConfigError: it is none.
    """
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except NOT_JSON as error:
        raise ConfigError(f"--extra-body can't be {shown(text)}: it is a JSON object ({error})") from None


def read_pairs(flag: str, texts: Sequence[str]) -> dict[str, str]:
    """``KEY=VALUE`` each.

    Raises:
        ConfigError: one that is none.
    """
    pairs = [text.partition("=") for text in texts]
    if wrong := ["".join(pair) for pair in pairs if not pair[0] or not pair[1]]:
        raise ConfigError(f"{flag} can't be {shown(wrong[0])}; write KEY=VALUE")
    return {key: value for key, _, value in pairs}
