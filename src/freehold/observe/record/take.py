"""One request, watched while the engine works on it."""

import logging
import time

import msgspec

from freehold.errors import EngineError, RequestError
from freehold.observe.record.format import Detail, Ended, Outcome
from freehold.observe.record.recorder import Recorder
from freehold.protocol import Event, Finish, Generate, Logprobs, PromptLogprobs, Tokens

_log = logging.getLogger(__name__)


class Take:
    """Watches one request on behalf of the recorder. What it asks of the engine beyond what the client did is kept from
    whoever reads the events.

    Args:
        recorder: has been told that the request begins.
        number: of its record.

    Attributes:
        asked: what to ask the engine instead of the client's request. The tokens are the same.
    """

    def __init__(self, recorder: Recorder, generate: Generate, number: int, detail: Detail) -> None:
        self._recorder = recorder
        self._generate = generate
        self._number = number
        self._is_full = detail == "full"
        self._first_token_s: float | None = None
        self._is_stopped = False
        self._token_ids: list[int] = []
        self._logprobs: list[Logprobs] = []
        self._digests: list[int] = []
        self._prompt_logprobs: list[Logprobs] = []
        self.asked = _watched(generate) if self._is_full else msgspec.structs.replace(generate, steps=True)

    def see(self, event: Event) -> Event:
        """Take in an event. Called in the engine's thread.

        Returns:
            what to pass on.
        """
        match event:
            case Tokens():
                if self._first_token_s is None:
                    self._first_token_s = time.monotonic()
                return self._take(event)
            case PromptLogprobs():
                if self._is_full:
                    self._prompt_logprobs += event.logprobs
            case Finish():
                self._end(event)
        return event

    def stop(self) -> None:
        """The answer is complete, as a stop string came: the engine is told to end what it has begun."""
        self._is_stopped = True

    def refuse(self, error: EngineError | RequestError) -> None:
        """The engine didn't take the request."""
        message = str(error) if self._is_full else None
        self._settle(
            Ended(number=self._number, at_s=time.monotonic(), outcome="refused", code=error.code, message=message)
        )

    def _take(self, event: Tokens) -> Tokens:
        if not self._is_full:
            return event
        self._token_ids += event.token_ids
        self._logprobs += event.logprobs
        self._digests += event.digests
        return msgspec.structs.replace(
            event,
            digests=event.digests if self._generate.digests else (),
            logprobs=event.logprobs if self._generate.sampling.num_logprobs is not None else (),
        )

    def _end(self, finish: Finish) -> None:
        self._settle(
            Ended(
                number=self._number,
                at_s=time.monotonic(),
                outcome=self._outcome(finish),
                reason=finish.reason,
                code=finish.code,
                message=finish.message if self._is_full else None,
                num_output_tokens=finish.num_output_tokens,
                num_cached_tokens=finish.num_cached_tokens,
                stages=finish.stages,
                first_token_s=self._first_token_s,
                token_ids=tuple(self._token_ids),
                logprobs=tuple(self._logprobs),
                digests=tuple(self._digests),
                prompt_logprobs=tuple(self._prompt_logprobs),
            )
        )

    def _outcome(self, finish: Finish) -> Outcome:
        if finish.reason in {"stop", "length"}:
            return "finished"
        if finish.reason == "failed":
            return "failed"
        return "stopped" if self._is_stopped else "cancelled"

    def _settle(self, ended: Ended) -> None:
        try:
            self._recorder.end(self._generate.request_id, ended)
        except Exception:
            _log.exception("the end of request %s isn't recorded", self._generate.request_id)


def _watched(generate: Generate) -> Generate:
    """The same request, whose digests, log probabilities and steps are told."""
    sampling = generate.sampling
    if sampling.num_logprobs is None:
        sampling = msgspec.structs.replace(sampling, num_logprobs=0)
    return msgspec.structs.replace(generate, sampling=sampling, digests=True, steps=True)
