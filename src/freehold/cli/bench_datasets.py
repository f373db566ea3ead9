"""Which flags of ``freehold bench`` belong to which data sets: one that would do nothing is refused."""

from collections.abc import Collection, Mapping

from freehold.errors import ConfigError

_TEXTS = ("custom", "sharegpt")
_TRACES = ("azure", "burstgpt", "mooncake", "recording", "timed_trace")
_FILES = (*_TEXTS, *_TRACES)

DATASETS_OF: Mapping[str, tuple[str, ...]] = {
    "dataset_path": _FILES,
    "random_input_len": ("random", "multi_turn"),
    "random_output_len": ("random", "multi_turn", "prefix_repetition"),
    "random_range_ratio": ("random", "multi_turn"),
    "output_len": _TEXTS,
    "max_turns": _TEXTS,
    "verbatim": _TEXTS,
    "prefix_len": ("prefix_repetition",),
    "suffix_len": ("prefix_repetition",),
    "num_prefixes": ("prefix_repetition",),
    "num_turns": ("multi_turn",),
    "opening_len": ("agent", "multi_turn", "published"),
    "pause": ("agent", "multi_turn", "published"),
    "published": ("published",),
    "length_scale": ("agent", "published"),
    "timed_trace_columns": ("timed_trace",),
    "timed_trace_chunk_hash_size": ("timed_trace",),
    "timed_trace_sec_multiplier": ("timed_trace",),
    "trace_length_scale": _TRACES,
    "trace_speed": _TRACES,
    "trace_times": _TRACES,
}
"""Data sets by the parameter of the command that they take."""


def refuse_foreign(given: Mapping[str, str], dataset: str) -> None:
    """Refuse flags that the data set doesn't take.

    Args:
        given: flags on the command line by the command's parameter.
        dataset: ``--dataset-name``. One that nobody knows is left to whoever opens it.

    Raises:
        ConfigError: there is such a flag.
    """
    if not any(dataset in names for names in DATASETS_OF.values()):
        return
    for parameter, flag in given.items():
        takers: Collection[str] = DATASETS_OF.get(parameter, (dataset,))
        if dataset not in takers:
            raise ConfigError(f"{flag} does nothing with --dataset-name {dataset}; it is for {', '.join(takers)}")
