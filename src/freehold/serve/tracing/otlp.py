"""OpenTelemetry's SDK: spans from notes, and their way out as OTLP over HTTP. Only loaded where traces are wanted.

Spans are made when all is known of them, in one go: the SDK's way, which is to open one and add to it, takes twice the
time. What is whose part and what is sampled is the SDK's business, and so are encoding and sending.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, TraceIdRatioBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    format_trace_id,
    get_current_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from freehold import __version__
from freehold.amounts import amount
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


@dataclass(frozen=True, slots=True)
class Place:
    """Where in which trace a request's span stands.

    Attributes:
        parent: the span that it is a part of; None begins a trace.
        attributes: what is known from the beginning.
    """

    context: SpanContext
    parent: SpanContext | None
    attributes: Attributes

    @property
    def trace_id(self) -> str:
        """As ``traceparent`` spells it."""
        return format_trace_id(self.context.trace_id)


class OtlpTracer:
    """Finds requests' places in the event loop; makes and sends their spans in another thread."""

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
        self._resource = _Resource(Resource.create(resource).attributes)
        self._scope = InstrumentationScope("freehold", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._sampler = ParentBased(TraceIdRatioBased(config.ratio))
        self._ids = RandomIdGenerator()
        self._exporter = OTLPSpanExporter(endpoint=config.endpoint, headers=dict(config.headers))
        self._complaints = _Complaints()
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # what it warns of, clients bring about
        exporter_log = logging.getLogger(_EXPORTER_LOG)
        exporter_log.setLevel(logging.WARNING)  # before it gives up it warns, and only then says of what
        exporter_log.addFilter(self._complaints)

    def place(self, headers: Mapping[str, str], name: str, attributes: Attributes) -> Place | None:
        """The place of a request in the trace that it brings along, or in a new one; None if it isn't traced.

        Args:
            headers: ``traceparent`` and ``tracestate``, where the request has them.
            name: of its span.
        """
        around = self._propagator.extract(headers)
        parent = get_current_span(around).get_span_context()
        trace_id = parent.trace_id if parent.is_valid else self._ids.generate_trace_id()
        sampled = self._sampler.should_sample(around, trace_id, name, SpanKind.SERVER, attributes)
        if sampled.decision is not Decision.RECORD_AND_SAMPLE:
            return None
        flags = TraceFlags(TraceFlags.SAMPLED)
        context = SpanContext(trace_id, self._ids.generate_span_id(), False, flags, sampled.trace_state)
        return Place(context, parent if parent.is_valid else None, attributes)

    def send(self, ended: Sequence[tuple[RequestNotes, Record]]) -> int:
        """Make spans of requests that have ended, and send them. Blocks.

        Returns:
            How many of the requests were lost.
        """
        spans: list[ReadableSpan] = []
        num_faulty = 0
        for notes, record in ended:
            try:
                spans += self._spans(notes, record)
            except Exception:
                num_faulty += 1
                _log.exception("request %s has no spans", record.request_id)
            time.sleep(0)  # lets the event loop's thread have its turn
        self._complaints.forget()
        if self._exporter.export(spans) is SpanExportResult.SUCCESS:
            return num_faulty
        self._complaints.complain(self._endpoint, len(ended))
        return len(ended)

    def stop(self) -> None:
        """Let `send` give up soon, from another thread."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]
        logging.getLogger(_EXPORTER_LOG).removeFilter(self._complaints)

    def _spans(self, notes: RequestNotes, record: Record) -> Iterator[ReadableSpan]:
        """A request's span, and those within."""
        place: Place = notes.place
        attributes = {**place.attributes, **request_attributes(notes, record, self._model, self._convention)}
        shared = shared_attributes(notes, self._environment)
        langfuse = langfuse_attributes(notes, record, attributes)
        is_error = langfuse.get(genai.LANGFUSE_LEVEL) == "ERROR"
        yield ReadableSpan(
            f"{notes.operation} {attributes[genai.REQUEST_MODEL]}",
            place.context,
            place.parent,
            self._resource,
            {**attributes, **shared, **langfuse},
            kind=SpanKind.SERVER,
            status=Status(StatusCode.ERROR if is_error else StatusCode.UNSET),
            start_time=_ns(notes, notes.began_s),
            end_time=_ns(notes, notes.ended_s or notes.began_s),
            instrumentation_scope=self._scope,
        )
        inside = place.context
        for within in spans_within(notes, record):
            span_id = self._ids.generate_span_id()
            yield ReadableSpan(
                within.name,
                SpanContext(inside.trace_id, span_id, False, inside.trace_flags, inside.trace_state),
                inside,
                self._resource,
                {**within.attributes, **shared},
                start_time=_ns(notes, within.began_s),
                end_time=_ns(notes, within.ended_s),
                instrumentation_scope=self._scope,
            )


class _Resource(Resource):
    """What all spans are of. The exporter looks it up for each, and the SDK's own hash is that of its JSON."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class _Complaints(logging.Filter):
    """Says in one line a minute what the exporter would say in many."""

    def __init__(self) -> None:
        super().__init__()
        self._reason = self._passing = ""
        self._said_s = -COMPLAINT_S
        self._num_lost = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.msg, str) and record.msg.startswith("Transient error"):
            self._passing = _cause(record.args[0]) if isinstance(record.args, tuple) and record.args else ""
        else:
            self._reason = record.getMessage()
        return False

    def forget(self) -> None:
        """Spans are about to be sent."""
        self._reason = self._passing = ""

    def complain(self, endpoint: str, num_lost: int) -> None:
        """Requests' spans couldn't be sent."""
        self._num_lost += num_lost
        if time.monotonic() - self._said_s < COMPLAINT_S:
            return
        # What it tried again and again it gives up without a word on why.
        reason = f"{self._passing} ({self._reason})" if self._passing else self._reason
        _log.warning("traces of %s can't be sent to %s: %s", amount(self._num_lost, "request"), endpoint, reason)
        self._said_s, self._num_lost = time.monotonic(), 0


def _cause(error: object) -> str:
    """What an attempt failed of: a status in words, or what the system said, which libraries wrap several times."""
    while isinstance(error, BaseException) and (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    said = error.strerror if isinstance(error, OSError) else None
    return said or str(error) or type(error).__name__


def _ns(notes: RequestNotes, moment_s: float) -> int:
    """Unix time in nanoseconds."""
    return int((moment_s + notes.unix_s) * 1e9)
