"""Which requests are recorded, and how fully: as the server was told, or as the key says."""

import random
import time
from collections.abc import Callable

from freehold.access.keys import Key
from freehold.config import RecordConfig, ServeConfig
from freehold.engine.handle import EngineHandle
from freehold.errors import RecordingError
from freehold.files.vocabulary import TextAssets
from freehold.observe.record.format import Detail, Header, vocabulary_hash
from freehold.observe.record.recorder import RecordCounts, Recorder
from freehold.observe.record.ring import RingLimits
from freehold.observe.record.take import Take
from freehold.protocol import Generate


class Flight:
    """One request of a client's that is recorded."""

    def __init__(self, recorder: Recorder, http_id: str, key_id: str, detail: Detail) -> None:
        self._recorder = recorder
        self._http_id = http_id
        self._key_id = key_id
        self._detail = detail

    def follow(self, generate: Generate) -> Take | None:
        """Begin to record one of its answers; None if it can't be recorded now."""
        number = self._recorder.begin(generate, http_id=self._http_id, key_id=self._key_id, detail=self._detail)
        return None if number is None else Take(self._recorder, generate, number, self._detail)


class FlightRecorder:
    """The recorder of a server, and who is recorded. Opens its folder when the first request is."""

    def __init__(self, config: RecordConfig, engine: EngineHandle, header: Callable[[int], Header]) -> None:
        """
        Args:
            header: of a run, given its number.

        Raises:
            RecordingError: requests are to be recorded, and the folder can't be written, or is another server's.
        """
        if config.folder is None:
            raise RecordingError("there is no folder to record into; name one with --record-dir")
        self._config = config
        self._recorder = Recorder(config.folder, RingLimits(config.max_bytes, config.max_age_s), header)
        if config.mode != "off":
            self._recorder.open()
        engine.on_step = self._recorder.step

    @property
    def counts(self) -> RecordCounts:
        """Frames written and dropped."""
        return self._recorder.counts

    @property
    def is_stopped(self) -> bool:
        """The disk has failed; nothing is recorded for now."""
        return self._recorder.is_stopped

    def flight(self, key: Key, http_id: str) -> Flight | None:
        """A request of this key has come. None if it isn't to be recorded."""
        mode = self._config.mode if key.record is None else key.record
        if mode == "off" or self._recorder.is_stopped or random.random() >= self._config.sample:
            return None
        return Flight(self._recorder, http_id, key.key_id, mode)

    def close(self) -> None:
        """Write what is pending. What requests bring after that is lost."""
        self._recorder.close()


def open_flight_recorder(engine: EngineHandle, text: TextAssets, config: ServeConfig) -> FlightRecorder:
    """The recorder of a server of one model.

    Raises:
        RecordingError: as from `FlightRecorder`.
    """

    def header(run: int) -> Header:
        return Header(
            run=run,
            unix_s=time.time(),
            monotonic_s=time.monotonic(),
            model_name=config.served_model_name,
            model_path="" if config.record.model_path is None else str(config.record.model_path.absolute()),
            info=engine.info,
            tokenizer=vocabulary_hash(text.tokenizer.token_texts()),
        )

    return FlightRecorder(config.record, engine, header)
