"""A receiver of OTLP over HTTP that decodes the official messages, and can be slow, refuse, hang, or be away."""

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, SpanFlags

WAIT_S = 30.0


@dataclass(frozen=True)
class Received:
    """One span."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: str
    status: str
    begun_s: float
    ended_s: float
    attributes: dict[str, Any]
    resource: dict[str, Any]
    trace_state: str
    is_parent_remote: bool


@dataclass
class Receiver:
    """What it has received, and how it behaves.

    Attributes:
        delay_s: before it answers.
        status: that it answers with.
    """

    url: str = ""
    delay_s: float = 0.0
    status: int = 200
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    _spans: list[Received] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        with self._changed:
            self.paths.append(path)
            self.headers.append(headers)
            self._spans += _spans(request)
            self._changed.notify_all()

    @property
    def spans(self) -> list[Received]:
        with self._changed:
            return list(self._spans)

    def request(self, request_id: str) -> tuple[Received, list[Received]]:
        """The span of a request, once it is there, and those within."""
        span = self.named(lambda one: one.attributes.get("gen_ai.request.id") == request_id)
        return span, self.within(span)

    def named(self, is_meant: Callable[[Received], bool]) -> Received:
        """The one span that is meant, once it is there."""
        with self._changed:
            came = self._changed.wait_for(lambda: any(map(is_meant, self._spans)), WAIT_S)
            assert came, [one.name for one in self._spans]
            (span,) = filter(is_meant, self._spans)
            return span

    def within(self, span: Received) -> list[Received]:
        """By their begin."""
        found = [one for one in self.spans if one.parent_id == span.span_id and one.trace_id == span.trace_id]
        return sorted(found, key=lambda one: (one.begun_s, one.ended_s))


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a port of its own."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            time.sleep(receiver.delay_s)
            if receiver.status == 200:
                receiver.take(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            self.send_response(receiver.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads, server.block_on_close = True, False
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}/v1/traces"
        yield receiver
        server.shutdown()
        thread.join()


def _spans(request: ExportTraceServiceRequest) -> Iterator[Received]:
    for of_resource in request.resource_spans:
        resource = _attributes(of_resource.resource.attributes)
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield _span(span, resource)


def _span(span: Span, resource: dict[str, Any]) -> Received:
    return Received(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        name=span.name,
        kind=Span.SpanKind.Name(span.kind),
        status=span.status.DESCRIPTOR.fields_by_name["code"].enum_type.values_by_number[span.status.code].name,
        begun_s=span.start_time_unix_nano / 1e9,
        ended_s=span.end_time_unix_nano / 1e9,
        attributes=_attributes(span.attributes),
        resource=resource,
        trace_state=span.trace_state,
        is_parent_remote=bool(span.flags & SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK),
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    match value.WhichOneof("value"):
        case "array_value":
            return [_value(one) for one in value.array_value.values]
        case "kvlist_value":
            return _attributes(value.kvlist_value.values)
        case None:
            return None
        case name:
            return getattr(value, name)
