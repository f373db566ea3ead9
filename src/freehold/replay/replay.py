"""A whole replay: an engine of its own, every request again, a report."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from freehold.config import EngineConfig
from freehold.engine.handle import EngineHandle
from freehold.errors import RecordingError
from freehold.files.model import open_model
from freehold.files.vocabulary import load_text
from freehold.observe.record.format import Header, vocabulary_hash
from freehold.observe.record.reader import RecordedRequest, Recording
from freehold.protocol import TokenTexts
from freehold.replay.bisect import bisect
from freehold.replay.report import Comparison, Report
from freehold.replay.run import Pace, Repeater

NUM_BISECTED = 3

_ACTIVATIONS = {"f32": "float", "int8": "int8"}
"""Values of the setting, by the names of numeric formats."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to replay, and how.

    Attributes:
        only: the record's id; None: all.
        limit: the first requests only.
        with_bisection: repeat some of what differs for no known cause, alone and beside others.
    """

    pace: Pace
    only: str | None = None
    limit: int | None = None
    with_bisection: bool = False


def recorded_settings(header: Header) -> dict[str, Any]:
    """Settings, by name, that make an engine like the recorded one: its model, its numeric formats, its sizes."""
    info = header.info
    settings: dict[str, Any] = {
        "backend": info.backend,
        "max_model_len": info.max_model_len,
        "max_num_seqs": info.max_num_seqs,
        "kv_cache_memory_bytes": info.kv_bytes,
        "block_size": info.block_size,
    }
    if header.model_path:
        settings["model"] = header.model_path
    if info.backend == "cpu":
        settings["isa"] = info.identity.isa
        settings["kv_cache_dtype"] = info.identity.kv
        settings["activations"] = _ACTIVATIONS.get(info.identity.activations)
    return settings


def replay(
    recording: Recording, config: EngineConfig, options: Options, start: Callable[[EngineConfig], EngineHandle]
) -> Report:
    """Repeat a recording's requests on a new engine and compare.

    Args:
        start: starts an engine.

    Raises:
        RecordingError: there is no request with that id, or none that can be repeated.
        UserError: the model can't be loaded.
        EngineError: the engine has ended.
    """
    texts = _token_texts(config)
    tokenizer = "" if texts is None else vocabulary_hash(texts)
    with start(config) as engine:
        if texts is not None:
            engine.teach(texts)
        comparison = Comparison(recording, engine.info, tokenizer)
        chosen = islice(_chosen(recording, options.only), options.limit)
        Repeater(engine, options.pace).run(comparison.counted(chosen), comparison.take)
        report = comparison.close()
        if not report.num_compared:
            skipped = ", ".join(f"{number} {why}" for why, number in report.skipped.items()) or "none is there"
            remedy = "; --record full keeps what that needs" if "metadata" in report.skipped else ""
            raise RecordingError(f"no request in {recording.path} can be replayed: {skipped}{remedy}")
        if options.with_bisection:
            for differing in [each for each in report.differing if each.is_unexplained][:NUM_BISECTED]:
                recorded = recording.find(differing.record_id)
                assert recorded is not None
                report.bisections.append(bisect(engine, recording, recorded))
    return report


def _chosen(recording: Recording, only: str | None) -> Iterator[RecordedRequest]:
    if only is None:
        yield from recording.requests()
    elif (found := recording.find(only)) is not None:
        yield found
    else:
        raise RecordingError(
            f"there is no record {only!r} in {recording.path}; `freehold record ls` shows what is there"
        )


def _token_texts(config: EngineConfig) -> TokenTexts | None:
    """What the model's tokens write; None if there is no model."""
    if config.backend == "scripted":
        return None
    with open_model(config.model_path, cache_dir=config.cache_dir) as files:
        return load_text(files).tokenizer.token_texts()
