"""All workloads by the name that ``--dataset-name`` calls them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from freehold.errors import ConfigError, shown
from freehold.loadtest.workloads.base import Workload
from freehold.loadtest.workloads.lengths import Even, Lengths
from freehold.loadtest.workloads.published import PUBLISHED
from freehold.loadtest.workloads.served import Served
from freehold.loadtest.workloads.sessions import Sessions, SharedPrefixes
from freehold.loadtest.workloads.synthetic import Synthetic
from freehold.loadtest.workloads.text_files import PromptFile, ShareGptFile, TextFile
from freehold.loadtest.workloads.texts import Texts
from freehold.loadtest.workloads.trace import Fit, TraceWorkload
from freehold.loadtest.workloads.trace_files import (
    COLUMNS,
    MOONCAKE_BLOCK_LEN,
    TIMED_TRACE_BLOCK_LEN,
    AzureTrace,
    BurstTrace,
    JsonTrace,
    TraceFile,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the owner chose. Each attribute is a flag of ``freehold bench``; lengths are in tokens.

    Attributes:
        dataset_path: file of the data sets that are files.
        output_len: of answers to texts, instead of the file's own.
        max_turns: of a file's conversations.
        verbatim: texts are sent as they are, though a server may then have them cached.
        num_turns, opening_len, pause_s: of sessions: requests, what all begin with, mean pause in seconds.
        published: which lengths, see `PUBLISHED`.
        length_scale: published lengths are multiplied by it.
        trace_columns: own names of a timed trace's columns.
        trace_block_len, trace_unit_s: of a timed trace: tokens of a block, seconds of the time's unit.
        trace_length_scale, trace_speed: see `Fit`.
    """

    dataset_name: str = "random"
    dataset_path: Path | None = None
    random_input_len: int = 1024
    random_output_len: int = 128
    random_range_ratio: float = 0.0
    output_len: int | None = None
    max_turns: int = 1
    verbatim: bool = False
    prefix_len: int = 256
    suffix_len: int = 256
    num_prefixes: int = 10
    num_turns: int = 5
    opening_len: int = 0
    pause_s: float = 1.0
    published: str = "chat"
    length_scale: float = 1.0
    trace_columns: Mapping[str, str] = field(default_factory=dict)
    trace_block_len: int = TIMED_TRACE_BLOCK_LEN
    trace_unit_s: float = 0.001
    trace_length_scale: float | None = None
    trace_speed: float = 1.0


def open_workload(choice: Choice, served: Served) -> Workload:
    """The workload that was chosen.

    Raises:
        ConfigError: no such data set, a file that is missing, or lengths that don't fit the model's context.
    """
    opened = _OPENERS.get(choice.dataset_name)
    if opened is None:
        names = ", ".join(sorted(_OPENERS))
        raise ConfigError(f"--dataset-name can't be {shown(choice.dataset_name)}; there are: {names}")
    return opened(choice, served)


def _random(choice: Choice, served: Served) -> Workload:
    ratio = choice.random_range_ratio
    prompt = Even.around(choice.random_input_len, ratio, "--random-input-len")
    answer = Even.around(choice.random_output_len, ratio, "--random-output-len")
    most = served.max_model_len
    if most is not None and prompt.high + answer.high > most:
        raise ConfigError(
            f"prompts of {prompt.high} tokens and answers of {answer.high} don't fit the model's context of {most}; "
            "lower --random-input-len or --random-output-len"
        )
    return Synthetic("random", prompt, answer, served.filler(), most)


def _published(choice: Choice, served: Served) -> Workload:
    lengths = PUBLISHED.get(choice.published)
    if lengths is None:
        raise ConfigError(f"--published can't be {shown(choice.published)}; there are: {', '.join(PUBLISHED)}")
    if not 0 < choice.length_scale < float("inf"):
        raise ConfigError(f"--length-scale can't be {choice.length_scale}; it is a number above 0")
    prompt, answer = (each.scaled(choice.length_scale) for each in (lengths.input, lengths.output))
    filler, most = served.filler(), served.max_model_len
    if lengths.steps is None:
        return Synthetic("published", prompt, answer, filler, most)
    return Sessions(
        "published", lengths.steps, prompt, answer, filler, _opening(choice), pause_s=choice.pause_s, max_model_len=most
    )


def _multi_turn(choice: Choice, served: Served) -> Workload:
    return Sessions(
        "multi_turn",
        steps=_fixed(choice.num_turns, "--num-turns"),
        input=Even.around(choice.random_input_len, choice.random_range_ratio, "--random-input-len"),
        output=Even.around(choice.random_output_len, choice.random_range_ratio, "--random-output-len"),
        filler=served.filler(),
        opening=_opening(choice),
        pause_s=choice.pause_s,
        max_model_len=served.max_model_len,
    )


def _shared_prefixes(choice: Choice, served: Served) -> Workload:
    return SharedPrefixes(
        choice.num_prefixes,
        _fixed(choice.prefix_len, "--prefix-repetition-prefix-len"),
        _fixed(choice.suffix_len, "--prefix-repetition-suffix-len"),
        _fixed(choice.random_output_len, "--random-output-len"),
        served.filler(),
        served.max_model_len,
    )


def _texts(kind: Callable[[Path], TextFile]) -> "_Opener":
    def open_texts(choice: Choice, served: Served) -> Workload:
        return Texts(
            choice.dataset_name,
            kind(_path(choice)),
            served.count,
            output_len=choice.output_len,
            max_turns=choice.max_turns,
            max_model_len=served.max_model_len,
            is_verbatim=choice.verbatim,
        )

    return open_texts


def _trace(kind: Callable[[Choice], TraceFile], block_len: Callable[[Choice], int]) -> "_Opener":
    def open_trace(choice: Choice, served: Served) -> Workload:
        fit = Fit(served.max_model_len, choice.trace_length_scale, choice.trace_speed)
        return TraceWorkload(choice.dataset_name, kind(choice), served.filler(), fit, block_len(choice))

    return open_trace


def _timed_trace(choice: Choice) -> TraceFile:
    unknown = choice.trace_columns.keys() - set(COLUMNS)
    if unknown:
        raise ConfigError(f"--timed-trace-columns can't rename {min(unknown)!r}; there are: {', '.join(COLUMNS)}")
    if choice.trace_block_len < 1:
        raise ConfigError(f"--timed-trace-chunk-hash-size can't be {choice.trace_block_len}; it is at least 1")
    if not 0 < choice.trace_unit_s < float("inf"):
        raise ConfigError(f"--timed-trace-sec-multiplier can't be {choice.trace_unit_s}; it is a number above 0")
    return JsonTrace(_path(choice), choice.trace_block_len, choice.trace_unit_s, choice.trace_columns)


def _opening(choice: Choice) -> Lengths | None:
    return _fixed(choice.opening_len, "--opening-len") if choice.opening_len else None


def _fixed(length: int, flag: str) -> Even:
    return Even.around(length, 0.0, flag)


def _path(choice: Choice) -> Path:
    if choice.dataset_path is None:
        raise ConfigError(f"--dataset-name {choice.dataset_name} needs a file: --dataset-path FILE")
    return choice.dataset_path


_Opener = Callable[[Choice, Served], Workload]

_OPENERS: dict[str, _Opener] = {
    "random": _random,
    "published": _published,
    "multi_turn": _multi_turn,
    "prefix_repetition": _shared_prefixes,
    "sharegpt": _texts(ShareGptFile),
    "custom": _texts(PromptFile),
    "mooncake": _trace(lambda choice: JsonTrace(_path(choice)), lambda _: MOONCAKE_BLOCK_LEN),
    "timed_trace": _trace(_timed_trace, lambda choice: choice.trace_block_len),
    "azure": _trace(lambda choice: AzureTrace(_path(choice)), lambda _: MOONCAKE_BLOCK_LEN),
    "burstgpt": _trace(lambda choice: BurstTrace(_path(choice)), lambda _: MOONCAKE_BLOCK_LEN),
}

DATASETS = tuple(_OPENERS)
"""Names that ``--dataset-name`` takes."""
