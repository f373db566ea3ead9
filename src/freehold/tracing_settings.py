"""Settings of traces: what OpenTelemetry's own environment variables say in the words of ours, and the configuration.

A variable or key of ours goes before one of OpenTelemetry's. None of those turns tracing on: that an endpoint stands in
the environment of all services of a machine doesn't mean that what this one knows shall leave it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from freehold.config import TracingConfig

_HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
_SERVICE = "OTEL_SERVICE_NAME"
_RESOURCE = "OTEL_RESOURCE_ATTRIBUTES"
_OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"
_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

_WITH_CONTENT = frozenset({"true", "span_only", "span_and_event"})
_LATEST = "gen_ai_latest_experimental"


def given(environ: Mapping[str, str]) -> Iterator[tuple[str, object, str]]:
    """Name of a setting, its raw value, and the variable that gives it. What can't be used is left out, as the
    specification asks for."""
    for variable in _HEADERS:
        if headers := _pairs(environ.get(variable, "")):
            yield "otlp_traces_headers", headers, variable
            break
    resource, name = _pairs(environ.get(_RESOURCE, "")), environ.get(_SERVICE, "").strip()
    named = [pair for pair in resource if not pair.startswith("service.name=")] + [f"service.name={name}"]
    if name and name.isprintable():
        yield "otlp_traces_resource", named, f"{_RESOURCE} and {_SERVICE}" if resource else _SERVICE
    elif resource:
        yield "otlp_traces_resource", resource, _RESOURCE
    if _LATEST in (word.strip() for word in environ.get(_OPT_IN, "").split(",")):
        yield "otlp_traces_convention", "latest", _OPT_IN
    if environ.get(_CAPTURE, "").strip().lower() in _WITH_CONTENT:
        yield "otlp_traces_content", "true", _CAPTURE


def tracing_config(values: Mapping[str, Any]) -> TracingConfig | None:
    """Where traces go and what they hold, from the values of settings by name; None if they go nowhere."""
    if "otlp_traces_endpoint" not in values:
        return None
    url = values["otlp_traces_endpoint"].rstrip("/")
    return TracingConfig(
        endpoint=url if url.endswith("/traces") else f"{url}/v1/traces",
        headers=_split(values.get("otlp_traces_headers", ())),
        ratio=values["otlp_traces_ratio"],
        with_content=values["otlp_traces_content"],
        convention=values["otlp_traces_convention"],
        resource=_split(values.get("otlp_traces_resource", ())),
    )


def _split(pairs: Iterable[str]) -> tuple[tuple[str, str], ...]:
    parted = (pair.partition("=") for pair in pairs)
    return tuple((name.strip(), value.strip()) for name, _, value in parted)


def _pairs(text: str) -> list[str]:
    """``name=value`` of a list with commas, whose values are percent-encoded."""
    pairs = (part.partition("=") for part in text.split(","))
    return [
        f"{unquote(name.strip())}={unquote(value.strip())}"
        for name, sign, value in pairs
        if name.strip() and sign and "," not in unquote(value) and unquote(name + value).isprintable()
    ]
