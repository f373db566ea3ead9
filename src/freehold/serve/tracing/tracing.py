"""Traces of requests, as the server has them: begun at the door, noted on the way, ended, and sent by a thread."""

import asyncio
import logging
import time
from importlib.util import find_spec

from starlette.datastructures import Headers
from starlette.types import Scope

from freehold.amounts import amount
from freehold.config import TracingConfig
from freehold.errors import ConfigError
from freehold.observe import genai
from freehold.serve.entrance.record import Record
from freehold.serve.tracing.notes import Attributes, RequestNotes
from freehold.serve.tracing.outbox import Outbox, Room

MAX_WAITING = 2048
"""Requests whose spans wait to be sent."""
MAX_WAITING_BYTES = 64 << 20
"""Of these requests' bodies, if content is wanted."""
MAX_BATCH = 32
"""Requests whose spans go out together. They are encoded in one go, in which nothing else runs: a few milliseconds."""
MAX_BATCH_BYTES = 4 << 20
"""Of their bodies, but for one that is longer itself. Collectors take some 20 MiB, and Langfuse is told content in its
own words too."""
LINGER_S = 1.0

FINISH_S = 2.0
"""So long a request that has ended waits for what the engine tells of its answers."""

_log = logging.getLogger(__name__)

_PARENTS = ("traceparent", "tracestate")


def require_opentelemetry() -> None:
    """Load what traces need.

    Raises:
        ConfigError: it isn't installed.
    """
    for module in ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"):
        if _is_missing(module):
            raise ConfigError(
                f"--otlp-traces-endpoint needs {module}, which isn't installed: `pip install '.[otel]'` in a clone"
            )
    from freehold.serve.tracing import otlp  # noqa: F401  the first request shall not wait for it


def _is_missing(module: str) -> bool:
    try:
        return find_spec(module) is None
    except ModuleNotFoundError:  # not even the package around it is there
        return True


class Tracing:
    """Traces of one server's requests. Used in its event loop."""

    def __init__(self, config: TracingConfig, model: str) -> None:
        """
        Args:
            model: the name that answers bear.
        """
        # Brings OpenTelemetry along, which servers without traces do without.
        from freehold.serve.tracing.otlp import OtlpTracer

        self._model = model
        self._with_content = config.with_content
        self._tracer = OtlpTracer(config, model)
        room, batch = Room(MAX_WAITING, MAX_WAITING_BYTES), Room(MAX_BATCH, MAX_BATCH_BYTES)
        self._outbox = Outbox(self._tracer.send, room=room, batch=batch, linger_s=LINGER_S)
        self._unfinished: dict[int, tuple[RequestNotes, Record]] = {}

    @property
    def num_lost(self) -> int:
        """Requests whose spans were given up."""
        return self._outbox.num_lost

    def begin(self, endpoint: str, route: str, scope: Scope, record: Record) -> None:
        """Begin to note a request, unless it isn't one to be traced."""
        operation = genai.OPERATIONS[endpoint]
        attributes: Attributes = {
            genai.OPERATION_NAME: operation,
            genai.PROVIDER_NAME: genai.PROVIDER,
            genai.REQUEST_MODEL: self._model,
            genai.HTTP_METHOD: scope["method"],
            genai.HTTP_ROUTE: route,
        }
        if scope.get("server"):
            attributes[genai.SERVER_ADDRESS], attributes[genai.SERVER_PORT] = scope["server"]
        place = self._tracer.place(_parents(scope), f"{operation} {self._model}", attributes)
        if place is not None:
            record.notes = RequestNotes(
                place=place,
                trace_id=place.trace_id,
                operation=operation,
                with_content=self._with_content,
                began_s=record.started_s,
                unix_s=time.time() - time.monotonic(),
            )

    def end(self, record: Record) -> None:
        """A request has ended. Its spans are sent once the engine has told of its answers, or at the latest soon."""
        notes = record.notes
        if notes is None or record.code == "invalid_api_key":  # strangers leave no traces
            return
        notes.ended_s = time.monotonic()
        if notes.is_complete:
            self._hand_over(notes, record)
            return
        self._unfinished[id(notes)] = notes, record
        notes.on_complete = lambda: self._finish(notes)
        asyncio.get_running_loop().call_later(FINISH_S, self._finish, notes)

    def close(self, timeout_s: float) -> None:
        """Send what is left, for so long. Blocks."""
        for notes, _ in list(self._unfinished.values()):
            self._finish(notes)
        num_lost = self.num_lost
        self._outbox.close(timeout_s)
        self._tracer.stop()
        if self.num_lost > num_lost:
            _log.warning("traces of %s were not sent before the end", amount(self.num_lost - num_lost, "request"))

    def _finish(self, notes: RequestNotes) -> None:
        if (unfinished := self._unfinished.pop(id(notes), None)) is not None:
            self._hand_over(*unfinished)

    def _hand_over(self, notes: RequestNotes, record: Record) -> None:
        num_bytes = notes.asked.num_bytes if notes.asked is not None and notes.with_content else 0
        self._outbox.put((notes, record), num_bytes)


def _parents(scope: Scope) -> dict[str, str]:
    """The trace that a request brings along. Of several parents none counts: joined, they are none."""
    headers = Headers(scope=scope)
    return {name: ",".join(values) for name in _PARENTS if (values := headers.getlist(name))}
