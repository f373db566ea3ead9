"""Tens of thousands of wrong requests, generated from the OpenAPI document: each field of each body, at each depth,
with each kind of value that may not stand there. Each is refused at once, as the client's mistake, by the field's name,
and the next good request is fine."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import pytest
from tests.server.in_process import JSON_HEADERS, Answer, InProcess
from tests.server.wrong_values import Surface

from freehold.config import EngineConfig
from freehold.errors import RequestError
from freehold.files.vocabulary import TextAssets
from freehold.serve.body import decode
from freehold.serve.endpoints import ENDPOINTS
from freehold.serve.field_types import PATTERNS
from freehold.serve.openapi import document

DOCUMENT = json.loads(json.dumps(document(ENDPOINTS)))
GOOD = {"messages": [{"role": "user", "content": "Hi"}]}
NEEDED: dict[str, Any] = {
    "/tokenize": {"prompt": "x"},
    "/apply-template": GOOD,
    "/v1/chat/completions": GOOD,
    "/v1/batches": {"input_file_id": "none", "endpoint": "/v1/completions", "completion_window": "24h"},
}
"""What the schema doesn't ask for, and the server does."""
GOOD_STATUS = {"/v1/batches": 404}
"""Where a good body needs more: a file that was sent before."""
SURFACES = {
    path: Surface(
        DOCUMENT, methods["post"]["requestBody"]["content"]["application/json"]["schema"], NEEDED.get(path, {})
    )
    for path, methods in DOCUMENT["paths"].items()
    if "application/json" in methods.get("post", {}).get("requestBody", {}).get("content", {})
    and path != "/debug/profile"  # answers only where it was asked for at the start
}
QUICK_S = 1.0
DECODERS_WORDS = re.compile(r"matching regex|[Ee]xpected `|got `|[Ii]nvalid (enum )?value|Object ")
SAYS_WHAT_TO_DO = re.compile(r"; give |; leave it out|are needed|is needed|must be|integers\.")


@pytest.fixture(scope="module")
def server(text: TextAssets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    config = EngineConfig(model_path=Path("scripted"), backend="scripted", max_model_len=512)
    with InProcess(text, config, state_dir=tmp_path_factory.mktemp("state")) as running:
        while running.ask("GET", "/v1/files").status == 503:  # opened in the background
            pass
        yield running


def check_good(server: InProcess) -> None:
    answer = server.post("/v1/chat/completions", {**GOOD, "max_tokens": 1})
    assert answer.status == 200, answer.body


def check_refused(answer: Answer, place: str, sent: Any, code: str | None = None) -> None:
    shown = f"{ascii(sent)[:300]} -> {answer.status} {answer.body[:300]!r}"
    assert answer.status == 400, shown
    assert answer.seconds < QUICK_S, shown
    assert len(answer.body) < 2000, shown
    error: dict[str, Any] = answer.json["error"]
    assert error["type"] == "invalid_request_error", shown
    assert not DECODERS_WORDS.search(error["message"]), shown
    if error.get("code") == "invalid_type":
        assert SAYS_WHAT_TO_DO.search(error["message"]), shown
    if "code" in error:  # Anthropic's errors have none
        assert (error["param"] or "").startswith(place), shown
        assert code in (None, error["code"]), shown
    assert place in error["message"], shown


@pytest.mark.parametrize(
    ("path", "field"), [(path, field) for path, surface in SURFACES.items() for field in surface.fields]
)
def test_a_wrong_value_is_refused_by_name(server: InProcess, path: str, field: str) -> None:
    num_sent = 0
    for body in SURFACES[path].wrong(field):
        check_refused(server.post(path, body), field, body)
        num_sent += 1
    assert num_sent or SURFACES[path].takes_anything(field)
    check_good(server)


def test_each_pattern_that_decoding_checks_is_told_in_words() -> None:
    def patterns_in(schema: Any) -> Iterator[str]:
        if isinstance(schema, dict):
            if schema.get("type") == "string" and "pattern" in schema:
                yield schema["pattern"]
            schema = list(schema.values())
        if isinstance(schema, list):
            for inner in schema:
                yield from patterns_in(inner)

    found = set(patterns_in(DOCUMENT))
    assert found == PATTERNS.keys()
    for pattern in found:
        decoder = msgspec.json.Decoder(Annotated[str, msgspec.Meta(pattern=pattern)])
        with pytest.raises(RequestError, match=re.escape(f"the body: {PATTERNS[pattern]}")):
            decode(b'"\\n"', cast(Any, decoder))


def test_there_are_tens_of_thousands() -> None:
    num_cases = sum(1 for surface in SURFACES.values() for field in surface.fields for _ in surface.wrong(field))
    assert num_cases > 30_000


@pytest.mark.parametrize("path", SURFACES)
def test_good_bodies_are_good(server: InProcess, path: str) -> None:
    """What all wrong bodies differ from in one place."""
    good = SURFACES[path].good()
    assert SURFACES[path].allows(good)
    answer = server.post(path, good)
    assert answer.status == GOOD_STATUS.get(path, 200), answer.body


@pytest.mark.parametrize("path", SURFACES)
def test_missing_and_unknown_fields(server: InProcess, path: str) -> None:
    surface = SURFACES[path]
    for name in surface.required:
        body = {key: value for key, value in surface.good().items() if key != name}
        check_refused(server.post(path, body), name, body, "missing_field")
    for name in ("wild", "Model", "max-tokens", "model ", "", "\x00", "é", "x" * 1000, "$ref"):
        body = {**surface.good(), name: 1}
        answer = server.post(path, body)
        assert answer.status == 400
        assert repr(name[:60]) in answer.json["error"]["message"]
        answer = server.post(path, {**surface.good(), name: None})
        assert answer.status == GOOD_STATUS.get(path, 200), "null asks for nothing"
    check_good(server)


NO_BODIES = [
    b"", b" ", b"{", b"}", b"nil", b"null", b"[]", b"1", b'"x"', b"true", b"{'a': 1}", b'{"a": 1,}', b"{a: 1}",
    b'{"a" 1}', b'{"a": }', b'{"a": 01}', b'{"a": +1}', b'{"a": .5}', b'{"a": 1.}', b'{"a": 0x10}', b'{"a": "\n"}',
    b'{"a": "\\x"}', b'{"a": "\\u12"}', b'{"a": tru}', b'{"a": 1} x', b'{"a": 1}{}', b"// x\n{}", b"\xff\xfe",
    b"\x00", b"\xef\xbb\xbf{}", b'{"model": "\xff"}', b'{"model": "\xc0\xaf"}', b'{"model": "\xed\xa0\x80"}',
    b'{"model": "\\ud800"}', b'{"model": "\\udc00\\ud800"}', b'{"\\ud800": 1}', b'{"model": ["\\ud83d x"]}',
    b'{"model": NaN}', b'{"model": Infinity}', b'{"model": -Infinity}', b'{"seed": 1e999}', b'{"a": "' + b"x" * 100_000,
    b"[" * 100_000, b'{"a":' * 50_000, b'{"a": ' + b"[" * 65 + b"]" * 65 + b"}", b"[" * 65 + b"]" * 65,
    b'{"a": ' + b'{"a": ' * 64 + b"1" + b"}" * 65, "{\"model\": \"x\"}".encode("utf-16"), b"model=x", b"<x/>",
]  # fmt: skip


@pytest.mark.parametrize("path", SURFACES)
def test_what_is_no_body(server: InProcess, path: str) -> None:
    for body in NO_BODIES:
        answer = server.post(path, body)
        assert answer.status == 400, (body[:60], answer.body[:300])
        assert answer.seconds < QUICK_S
        assert answer.json["error"]["type"] == "invalid_request_error"
    check_good(server)


@pytest.mark.parametrize("path", SURFACES)
def test_names_that_stand_twice(server: InProcess, path: str) -> None:
    good = json.dumps(SURFACES[path].good())[:-1]
    for rest, name in (
        (', "model": "test", "model": "test"}', "model"),
        (', "model": "test", "mod\\u0065l": null}', "model"),
        (', "x": {"y": [{"z": 1, "z": 1}]}}', "z"),
        (', "x": null, "x": null}', "x"),
    ):
        sent = (good + rest).encode()
        check_refused(server.post(path, sent), name, sent, "duplicate_field")
    check_good(server)


NO_JSON = [
    "", "text/plain", "text/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
    "application/jsonx", "application/json+x", "*/*", "json", "a" * 500, "application/json; charset=latin-1",
]  # fmt: skip


@pytest.mark.parametrize("path", SURFACES)
def test_what_isnt_declared_as_json(server: InProcess, path: str) -> None:
    good = json.dumps(SURFACES[path].good()).encode()
    for kind in NO_JSON:
        answer = server.post(path, good, [("content-type", kind)])
        assert (answer.status, answer.json["error"]["type"]) == (415, "invalid_request_error"), kind
    for header in ([], [*JSON_HEADERS, ("content-encoding", "gzip")], [*JSON_HEADERS, ("content-encoding", "br")]):
        assert server.post(path, good, header).status == 415
    assert server.post(path, good, [*JSON_HEADERS, *JSON_HEADERS]).status == 400
    check_good(server)
