"""OpenTelemetry's SDK: spans from notes, and their way out as OTLP over HTTP. Only loaded where traces are wanted."""

import logging
import threading
import time
from collections.abc import Mapping, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, format_trace_id, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from freehold import __version__
from freehold.config import TracingConfig
from freehold.observe import genai
from freehold.serve.entrance.record import Record
from freehold.serve.tracing.langfuse import langfuse_attributes
from freehold.serve.tracing.notes import Attributes, RequestNotes
from freehold.serve.tracing.spans import request_attributes, shared_attributes, spans_within

COMPLAINT_S = 60.0
"""So long after a line in the log that says that spans are lost, no other does."""

_EXPORTER_LOG = "opentelemetry.exporter.otlp.proto.http.trace_exporter"

_log = logging.getLogger(__name__)


class OtlpTracer:
    """Begins spans in the event loop, and ends and sends them in another thread."""

    def __init__(self, config: TracingConfig, model: str) -> None:
        """
        Args:
            model: the name that answers bear.
        """
        resource = {genai.SERVICE_NAME: "freehold", genai.SERVICE_VERSION: __version__, **dict(config.resource)}
        self._model = model
        self._endpoint = config.endpoint
        self._environment = dict(config.resource).get(genai.ENVIRONMENT, "")
        self._convention = genai.CONVENTIONS[config.convention]
        self._propagator = TraceContextTextMapPropagator()
        self._ended = _Ended()
        self._exporter = OTLPSpanExporter(endpoint=config.endpoint, headers=dict(config.headers))
        self._complaints = _Complaints()
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # what it warns of, clients bring about
        logging.getLogger(_EXPORTER_LOG).addFilter(self._complaints)
        provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(config.ratio)),
            resource=Resource.create(resource),
            shutdown_on_exit=False,
        )
        provider.add_span_processor(self._ended)
        self._tracer = provider.get_tracer("freehold", __version__)

    def begin(self, headers: Mapping[str, str], name: str, attributes: Attributes, began_ns: int) -> Span | None:
        """The span of a request, as a part of the trace that it brings along, if any; None if it isn't traced.

        Args:
            headers: ``traceparent`` and ``tracestate``, where the request has them.
            began_ns: Unix time in nanoseconds, as all such here.
        """
        context = self._propagator.extract(headers)
        span = self._tracer.start_span(name, context, kind=SpanKind.SERVER, attributes=attributes, start_time=began_ns)
        return span if span.is_recording() else None

    @staticmethod
    def trace_id(span: Span) -> str:
        """Of the trace that a span is a part of, as ``traceparent`` spells it."""
        return format_trace_id(span.get_span_context().trace_id)

    def send(self, ended: Sequence[tuple[RequestNotes, Record]]) -> int:
        """Make spans of requests that have ended, and send them. Blocks.

        Returns:
            How many of the requests were lost.
        """
        try:
            for notes, record in ended:
                self._end(notes, record)
                time.sleep(0)  # lets the event loop's thread have its turn
            if self._exporter.export(self._ended.take()) is SpanExportResult.SUCCESS:
                return 0
        except Exception:
            _log.exception("spans can't be made")
            self._ended.take()
        else:
            self._complaints.complain(self._endpoint, len(ended))
        return len(ended)

    def stop(self) -> None:
        """Let `send` give up soon, from another thread."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]
        logging.getLogger(_EXPORTER_LOG).removeFilter(self._complaints)

    def _end(self, notes: RequestNotes, record: Record) -> None:
        span: Span = notes.span
        attributes = request_attributes(notes, record, self._model, self._convention)
        shared = shared_attributes(notes, self._environment)
        langfuse = langfuse_attributes(notes, record, attributes)
        span.set_attributes({**attributes, **shared, **langfuse})
        span.update_name(f"{notes.operation} {attributes.get(genai.REQUEST_MODEL, self._model)}")
        if langfuse.get(genai.LANGFUSE_LEVEL) == "ERROR":
            span.set_status(Status(StatusCode.ERROR))
        inside = set_span_in_context(span)
        for within in spans_within(notes, record):
            part = self._tracer.start_span(
                within.name, inside, attributes={**within.attributes, **shared}, start_time=_ns(notes, within.began_s)
            )
            part.end(_ns(notes, within.ended_s))
        span.end(_ns(notes, notes.ended_s or notes.began_s))


class _Ended(SpanProcessor):
    """Keeps spans that have ended until they are taken."""

    def __init__(self) -> None:
        self._spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self._spans.append(span)

    def take(self) -> list[ReadableSpan]:
        """All that have ended since the last time."""
        spans, self._spans = self._spans, []
        return spans


class _Complaints(logging.Filter):
    """Says in one line a minute what the exporter would say in many."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._reason = ""
        self._said_s = -COMPLAINT_S
        self._num_lost = 0

    def filter(self, record: logging.LogRecord) -> bool:
        self._reason = record.getMessage()
        return False

    def complain(self, endpoint: str, num_lost: int) -> None:
        """Requests' spans couldn't be sent."""
        self._num_lost += num_lost
        if time.monotonic() - self._said_s < COMPLAINT_S:
            return
        _log.warning("traces of %d requests can't be sent to %s: %s", self._num_lost, endpoint, self._reason)
        self._said_s, self._num_lost = time.monotonic(), 0


def _ns(notes: RequestNotes, moment_s: float) -> int:
    """Unix time in nanoseconds."""
    return int((moment_s + notes.unix_s) * 1e9)
