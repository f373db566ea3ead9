"""The served OpenAPI document: it tells of every route, and requests made up from it find nothing untrue."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema
from tests.server.running import Server, Start

Json = dict[str, Any]


@pytest.fixture(scope="module")
def document(shared_server: Server) -> Json:
    response = shared_server.http.get("/openapi.json")
    assert response.headers["content-type"] == "application/json"
    parsed: Json = response.json()
    return parsed


def operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def test_routes_and_document_agree(shared_server: Server, document: Json) -> None:
    served = {
        (method, re.sub(r":path}", "}", route.path))
        for route in shared_server.routes
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert served == {(method, path) for method, path, _ in operations(document)}


def test_operations_are_told_apart_and_summed_up(document: Json) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    for _, path, operation in operations(document):
        assert 3 < len(operation["summary"]) < 120, path
        assert not operation["summary"].endswith(".")
        assert "200" in operation["responses"]


def test_references_lead_somewhere(document: Json) -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from (target for name, target in value.items() if name == "$ref")
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from references(inner)

    found = set(references(document))
    assert len(found) > 20
    for reference in found:
        target: Any = document
        for step in reference.removeprefix("#/").split("/"):
            target = target[step]
        assert target


def test_fields_are_told_with_bounds_and_what_does_nothing(document: Json) -> None:
    chat = document["components"]["schemas"]["ChatRequest"]
    assert chat["required"] == ["messages"]
    assert {"minimum": 0, "maximum": 100.0, "type": "number"} in chat["properties"]["temperature"]["anyOf"]
    assert chat["properties"]["user"] == {"description": "Accepted; does nothing."}
    assert chat["additionalProperties"] == {"type": "null"}


def closed(document: Json) -> Json:
    """The document with answers that may hold nothing it doesn't tell of."""
    schemas = {
        name: schema if "additionalProperties" in schema else {**schema, "additionalProperties": False}
        for name, schema in document["components"]["schemas"].items()
    }
    return {**document, "components": {**document["components"], "schemas": schemas}}


def try_out(server: Server, document: Json, num_examples: int, seed: int) -> tuple[int, dict[tuple[str, str], str]]:
    """Send what Schemathesis makes up: valid, invalid, at bounds, sequences.

    Returns:
        how many requests were made, and an example of each kind of failure.
    """
    config = SchemathesisConfig.from_dict(
        {
            "base-url": server.url,
            "seed": seed,
            "request-timeout": 20,
            "generation": {"max-examples": num_examples, "database": "none"},
            # Rules between fields, the template's and the vocabulary's are more than a schema says.
            "checks": {"positive_data_acceptance": {"enabled": False}},
        }
    )
    num_requests = 0
    failures: dict[tuple[str, str], str] = {}
    for event in from_schema(schemathesis.openapi.from_dict(closed(document), config=config)).execute():
        assert not isinstance(event, events.NonFatalError | events.FatalError), event
        if isinstance(event, events.ScenarioFinished):
            num_requests += len(event.recorder.interactions)
            for checks in event.recorder.checks.values():
                for check in checks:
                    if check.failure_info is not None:
                        failure = check.failure_info.failure
                        example = f"{failure.message}\n{check.failure_info.code_sample}"
                        failures.setdefault((event.recorder.label, failure.title), example)
    return num_requests, failures


@pytest.fixture
def small(start: Start, tmp_path: Path) -> Server:
    """A server whose answers are short, whatever is asked for."""
    server = start(engine={"max_model_len": 256}, state_dir=tmp_path)
    server.says("ok")
    return server


def test_requests_made_up_from_the_document(small: Server, document: Json) -> None:
    num_requests, failures = try_out(small, document, num_examples=2, seed=1)
    assert not failures
    assert num_requests > 3000


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_many_requests_made_up_from_the_document(small: Server, document: Json, seed: int) -> None:
    num_requests, failures = try_out(small, document, num_examples=150, seed=seed)
    assert not failures
    assert num_requests > 5000
