"""All workloads by the name that ``--dataset-name`` calls them."""

from collections.abc import Callable
from pathlib import Path

from freehold.errors import ConfigError, shown
from freehold.loadtest.options import DatasetOptions
from freehold.loadtest.workloads.base import Workload
from freehold.loadtest.workloads.filler import Filler
from freehold.loadtest.workloads.lengths import Even, Lengths
from freehold.loadtest.workloads.published import PUBLISHED
from freehold.loadtest.workloads.recorded import Recorded, RecordingTrace, has_prompts
from freehold.loadtest.workloads.served import Served
from freehold.loadtest.workloads.sessions import Sessions, SharedPrefixes
from freehold.loadtest.workloads.synthetic import Synthetic
from freehold.loadtest.workloads.text_files import PromptFile, ShareGptFile, TextFile
from freehold.loadtest.workloads.texts import Texts
from freehold.loadtest.workloads.trace import Fit, TraceWorkload
from freehold.loadtest.workloads.trace_files import (
    COLUMNS,
    MOONCAKE_BLOCK_LEN,
    AzureTrace,
    BurstTrace,
    JsonTrace,
    TraceFile,
)


def open_workload(options: DatasetOptions, served: Served) -> Workload:
    """The workload that options name.

    Raises:
        ConfigError: no such data set, a file that is missing, or lengths that don't fit the model's context.
    """
    opened = _OPENERS.get(options.name)
    if opened is None:
        names = ", ".join(sorted(_OPENERS))
        raise ConfigError(f"--dataset-name can't be {shown(options.name)}; there are: {names}")
    return opened(options, served)


def _random(options: DatasetOptions, served: Served) -> Workload:
    ratio = options.random_range_ratio
    prompt = Even.around(options.random_input_len, ratio, "--random-input-len")
    answer = Even.around(options.random_output_len, ratio, "--random-output-len")
    most = served.max_model_len
    if most is not None and prompt.high + answer.high > most:
        raise ConfigError(
            f"prompts of {prompt.high} tokens and answers of {answer.high} don't fit the model's context of {most}; "
            "lower --random-input-len or --random-output-len"
        )
    return Synthetic("random", prompt, answer, served.filler(), most)


def _published(options: DatasetOptions, served: Served) -> Workload:
    lengths = PUBLISHED.get("agent" if options.name == "agent" else options.published)
    if lengths is None:
        raise ConfigError(f"--published can't be {shown(options.published)}; there are: {', '.join(PUBLISHED)}")
    if not 0 < options.length_scale < float("inf"):
        raise ConfigError(f"--length-scale can't be {options.length_scale}; it is a number above 0")
    prompt, answer = (each.scaled(options.length_scale) for each in (lengths.input, lengths.output))
    most = served.max_model_len
    if lengths.steps is None:
        return Synthetic(options.name, prompt, answer, served.filler(), most)
    opening, filler = _opening(options), _for_sessions(served)
    return Sessions(options.name, lengths.steps, prompt, answer, filler, opening, options.pause_s, most)


def _multi_turn(options: DatasetOptions, served: Served) -> Workload:
    return Sessions(
        "multi_turn",
        steps=_fixed(options.num_turns, "--num-turns"),
        input=Even.around(options.random_input_len, options.random_range_ratio, "--random-input-len"),
        output=Even.around(options.random_output_len, options.random_range_ratio, "--random-output-len"),
        filler=_for_sessions(served),
        opening=_opening(options),
        pause_s=options.pause_s,
        max_model_len=served.max_model_len,
    )


def _shared_prefixes(options: DatasetOptions, served: Served) -> Workload:
    return SharedPrefixes(
        options.num_prefixes,
        _fixed(options.prefix_len, "--prefix-repetition-prefix-len"),
        _fixed(options.suffix_len, "--prefix-repetition-suffix-len"),
        _fixed(options.random_output_len, "--random-output-len"),
        served.filler(),
        served.max_model_len,
    )


def _for_sessions(served: Served) -> Filler:
    """Completions that go on are texts: not every server tells the ids of its answers."""
    return served.filler("text" if served.form == "ids" else served.form)


def _texts(kind: Callable[[Path], TextFile]) -> "_Opener":
    def open_texts(options: DatasetOptions, served: Served) -> Workload:
        return Texts(
            options.name,
            kind(_path(options)),
            served.count,
            output_len=options.output_len,
            max_turns=options.max_turns,
            max_model_len=served.max_model_len,
            is_verbatim=options.is_verbatim,
        )

    return open_texts


def _trace(kind: Callable[[DatasetOptions], TraceFile], block_len: Callable[[DatasetOptions], int]) -> "_Opener":
    def open_trace(options: DatasetOptions, served: Served) -> Workload:
        return TraceWorkload(options.name, kind(options), served.filler(), _fit(options, served), block_len(options))

    return open_trace


def _fit(options: DatasetOptions, served: Served) -> Fit:
    return Fit(served.max_model_len, options.trace_length_scale, options.trace_speed)


def _recording(options: DatasetOptions, served: Served) -> Workload:
    """The prompts themselves where they were recorded and lengths aren't to change; else a trace of their lengths."""
    path, fit = _path(options), _fit(options, served)
    if served.form == "ids" and options.trace_length_scale is None and has_prompts(path):
        return Recorded(path, fit.speed)
    return _trace(lambda _: RecordingTrace(path), lambda _: MOONCAKE_BLOCK_LEN)(options, served)


def _timed_trace(options: DatasetOptions) -> TraceFile:
    unknown = options.trace_columns.keys() - set(COLUMNS)
    if unknown:
        raise ConfigError(f"--timed-trace-columns can't rename {min(unknown)!r}; there are: {', '.join(COLUMNS)}")
    if options.trace_block_len < 1:
        raise ConfigError(f"--timed-trace-chunk-hash-size can't be {options.trace_block_len}; it is at least 1")
    if not 0 < options.trace_unit_s < float("inf"):
        raise ConfigError(f"--timed-trace-sec-multiplier can't be {options.trace_unit_s}; it is a number above 0")
    return JsonTrace(_path(options), options.trace_block_len, options.trace_unit_s, options.trace_columns)


def _opening(options: DatasetOptions) -> Lengths | None:
    return _fixed(options.opening_len, "--opening-len") if options.opening_len else None


def _fixed(length: int, flag: str) -> Even:
    return Even.around(length, 0.0, flag)


def _path(options: DatasetOptions) -> Path:
    if options.path is None:
        raise ConfigError(f"--dataset-name {options.name} needs a file: --dataset-path FILE")
    return Path(options.path)


_Opener = Callable[[DatasetOptions, Served], Workload]

_OPENERS: dict[str, _Opener] = {
    "random": _random,
    "published": _published,
    "agent": _published,
    "multi_turn": _multi_turn,
    "prefix_repetition": _shared_prefixes,
    "sharegpt": _texts(ShareGptFile),
    "custom": _texts(PromptFile),
    "mooncake": _trace(lambda options: JsonTrace(_path(options)), lambda _: MOONCAKE_BLOCK_LEN),
    "timed_trace": _trace(_timed_trace, lambda options: options.trace_block_len),
    "azure": _trace(lambda options: AzureTrace(_path(options)), lambda _: MOONCAKE_BLOCK_LEN),
    "recording": _recording,
    "burstgpt": _trace(lambda options: BurstTrace(_path(options)), lambda _: MOONCAKE_BLOCK_LEN),
}

DATASETS = tuple(_OPENERS)
"""Names that ``--dataset-name`` takes."""
