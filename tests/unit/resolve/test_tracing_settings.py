"""Settings of traces, and what OpenTelemetry's own variables say of them."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.resolve.test_resolve import MACHINE

from freehold import resolve
from freehold.cli.settings_table import settings_table
from freehold.config import TracingConfig
from freehold.errors import ConfigError
from freehold.settings import SETTINGS

URL = "http://127.0.0.1:4318"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for setting in SETTINGS:
        monkeypatch.delenv(setting.variable, raising=False)
    monkeypatch.setenv("FREEHOLD_HOME", str(tmp_path / "home"))


def config(tmp_path: Path, **flags: Any) -> TracingConfig | None:
    model = tmp_path / "tiny.gguf"
    model.write_bytes(bytes(1000))
    return resolve.serve_config({"model": str(model), **flags}, machine=MACHINE).serve.tracing


def traced(tmp_path: Path, **flags: Any) -> TracingConfig:
    found = config(tmp_path, otlp_traces_endpoint=URL, **flags)
    assert found is not None
    return found


OTEL = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": URL,
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{URL}/v1/traces",
    "OTEL_EXPORTER_OTLP_HEADERS": "api-key=k%20ey,other = 1 ,broken,=x,comma=a%2Cb",
    "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=staging,service.name=lost",
    "OTEL_SERVICE_NAME": "mine",
    "OTEL_SEMCONV_STABILITY_OPT_IN": "http, gen_ai_latest_experimental",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
}


def test_opentelemetrys_variables_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in OTEL.items():
        monkeypatch.setenv(name, value)
    assert traced(tmp_path) == TracingConfig(
        endpoint=f"{URL}/v1/traces",
        headers=(("api-key", "k ey"), ("other", "1")),
        with_content=True,
        convention="latest",
        resource=(("deployment.environment.name", "staging"), ("service.name", "mine")),
    )


def test_they_dont_turn_tracing_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in OTEL.items():
        monkeypatch.setenv(name, value)
    assert config(tmp_path) is None


def test_ours_go_before_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in OTEL.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("FREEHOLD_OTLP_TRACES_HEADERS", "mine=1")
    flags = {"otlp_traces_content": "false", "otlp_traces_convention": "released", "otlp_traces_ratio": "0.25"}
    found = traced(tmp_path, **flags)
    assert (found.headers, found.with_content, found.convention, found.ratio) == (
        (("mine", "1"),), False, "released", 0.25,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("said", "with_content"),
    [("NO_CONTENT", False), ("false", False), ("EVENT_ONLY", False), ("", False), ("true", True),
     ("span_and_event", True), ("SPAN_ONLY", True), ("nonsense", False)],
)  # fmt: skip
def test_content_is_wanted_where_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, with_content: bool
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", said)
    assert traced(tmp_path).with_content is with_content


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("http://collector:4318/", "http://collector:4318/v1/traces"),
        ("http://collector:4318/v1/traces", "http://collector:4318/v1/traces"),
        ("https://host/api/public/otel", "https://host/api/public/otel/v1/traces"),
        ("https://host/own/traces", "https://host/own/traces"),
    ],
)
def test_the_path_is_appended_where_there_is_none(tmp_path: Path, given: str, used: str) -> None:
    found = config(tmp_path, otlp_traces_endpoint=given)
    assert found is not None
    assert found.endpoint == used


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("otlp_traces_endpoint", "collector:4318"), ("otlp_traces_endpoint", "grpc://collector:4317"),
        ("otlp_traces_endpoint", "http://user:secret@collector"), ("otlp_traces_endpoint", "http://host/x?key=secret"),
         ("otlp_traces_headers", "no-value"),
        ("otlp_traces_headers", "a b=c"), ("otlp_traces_headers", "a=b\nc"), ("otlp_traces_ratio", "1.5"),
        ("otlp_traces_ratio", "nan"), ("otlp_traces_convention", "newest"), ("otlp_traces_content", "maybe"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_by_name(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name):
        config(tmp_path, **{name: text})


def test_headers_are_not_shown(tmp_path: Path) -> None:
    model = tmp_path / "tiny.gguf"
    model.write_bytes(bytes(1000))
    flags = {"model": str(model), "otlp_traces_endpoint": URL, "otlp_traces_headers": "authorization=Basic hush"}
    table = settings_table(resolve.serve_config(flags, machine=MACHINE).values)
    assert "hush" not in table
    assert URL in table
    with pytest.raises(ConfigError) as refused:
        resolve.serve_config({**flags, "otlp_traces_headers": "hush hush=1"}, machine=MACHINE)
    assert "hush" not in str(refused.value)
