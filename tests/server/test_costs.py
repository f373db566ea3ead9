"""T12: what is cheap to ask is cheap to answer or refused, for every field at its cap and beyond; defaults are safe."""

import json
import time
from typing import Any

import pytest
from tests.server.running import Server, Start

from freehold.config import ServeConfig
from freehold.serve.body import MAX_DEPTH
from freehold.serve.entrance import connection

MILLION = 10**6

LISTS: dict[str, tuple[int, Any]] = {
    "stop": (4, "stop"),
    "stop_token_ids": (256, 7),
    "allowed_token_ids": (1 << 16, 7),
    "prompt": (128, "x"),
}
"""Fields that are lists: how many items they may have, and an item."""


def cpu_s(action: Any) -> float:
    began_s = time.process_time()
    action()
    return time.process_time() - began_s


@pytest.mark.parametrize("field", LISTS)
def test_long_lists_are_refused_before_their_items_are_looked_at(start: Start, field: str) -> None:  # se-02
    """se-02: at the limit it is served, beyond it is refused, and that costs next to nothing."""
    server = start(max_body_bytes=64 << 20)
    server.says("ok")
    most, item = LISTS[field]
    items = [f"{item}{number}" if isinstance(item, str) else item for number in range(most)]
    assert server.complete(**{"prompt": server.hi, field: items}, max_tokens=1).status_code == 200
    beyond = server.complete(**{field: [*items, item]})
    assert (beyond.status_code, beyond.json()["error"]["param"]) == (400, field)
    content = json.dumps({"model": "test", "prompt": "x", field: [item] * MILLION}).encode()
    took_s = cpu_s(
        lambda: server.http.post("/v1/completions", content=content, headers={"Content-Type": "application/json"})
    )
    assert took_s < 2.0, f"{len(content)} bytes took {took_s:.2f} s"


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 16},
        {"stop": ["s" * 256] * 4},
        {"stop_token_ids": list(range(256))},
        {"logit_bias": {str(number): 1.0 for number in range(1024)}},
        {"allowed_token_ids": list(range(40_000))},
        {"logprobs": 5},
        {"prompt_logprobs": 20},
        {"echo": True, "logprobs": 5},
        {"max_tokens": 1 << 30},
        {"min_tokens": 8},
        {"prompt": ["x"] * 128},
        {"metadata": {"x": "y" * 100_000}},
        {"cache_salt": "x" * 256},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_the_price_of_a_field_is_bounded(server: Server, fields: dict[str, Any]) -> None:
    """At its cap no field makes a request cost more than a tenth of a second of the server's time, and 10 µs a byte."""
    server.says("a few words")
    body = {"model": "test", "prompt": server.hi, "max_tokens": 8, **fields}
    num_bytes = len(json.dumps(body))
    server.http.post("/v1/completions", json=body)
    costs = [cpu_s(lambda: server.http.post("/v1/completions", json=body)) for _ in range(3)]
    num_answers = max(fields.get("n", 1), len(body["prompt"]) if isinstance(body["prompt"], list) else 1)
    assert min(costs) < 0.1 + 1e-5 * num_bytes + 5e-3 * num_answers


@pytest.mark.parametrize("num", [-1, 21, 49_152, 10**9])
def test_log_probabilities_of_prompts_are_few_or_refused(server: Server, num: int) -> None:  # se-04
    """se-04: 0 to 20 at each place, and so many in all."""
    for field, most in (("prompt_logprobs", 20), ("logprobs", 5)):
        refused = server.complete(**{field: num})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)
        assert server.complete(**{field: most}).status_code == 200
    assert "prompt_logprobs" not in server.complete().json()["choices"][0], "off unless asked for"


PATHS = [
    "../",
    "../../etc/passwd",
    "%2e%2e%2fetc%2fpasswd",
    "..%2f..%2fetc%2fpasswd",
    "/etc/passwd",
    "file:///etc/passwd",
]
PATHS += [
    "%00",
    "a%00b",
    "x" * 5000,
    "~/.ssh/id_rsa",
    "C:%5cwindows",
    "....//....//etc/passwd",
    "%ff%fe",
    "file-..%2f..%2fx",
]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ascii(path)[:30])
def test_no_name_leads_out_of_its_folder(start: Start, tmp_path: Any, path: str) -> None:
    """T7: names of models, files and batches are names; nothing is opened by them."""
    server = start(state_dir=tmp_path)
    server.says("ok")
    for prefix in ("/v1/models/", "/v1/files/", "/v1/batches/"):
        answer = server.http.get(f"{prefix}{path}")
        assert answer.status_code in (404, 503), (prefix, answer.status_code)
        assert "root:" not in answer.text
    content = server.http.get(f"/v1/files/{path}/content")
    assert content.status_code in (404, 503)
    assert server.complete(model=path).status_code == 404
    for kind in ("image_url", "file", "input_audio"):
        parts = [{"type": kind, kind: {"url": f"file://{path}", "file_id": path}}]
        assert server.chat(messages=[{"role": "user", "content": parts}]).status_code == 400


def test_templates_come_with_the_model_alone(server: Server) -> None:  # se-11
    """se-09, se-11: no client brings one."""
    for field in ("chat_template", "template"):
        refused = server.chat(**{field: "{{ 1 }}"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unknown_field")
    for name in ("messages", "tools", "raise_exception", "bos_token", "__class__", "range"):
        answer = server.chat(chat_template_kwargs={name: "x" * 10})
        assert answer.status_code == 400, name


def test_safe_defaults() -> None:
    """Facts about a fresh start that nobody configured."""
    config = ServeConfig()
    assert config.host == "127.0.0.1"
    assert config.allowed_origins == ()
    assert config.unknown_fields == "refuse"
    assert not config.allow_no_key
    assert config.max_body_bytes == 4 << 20
    assert connection.MAX_HEAD_BYTES == 32 << 10
    assert connection.HEAD_TIMEOUT_S == 10
    assert MAX_DEPTH == 64


def test_safe_defaults_over_http(server: Server) -> None:
    limits = server.http.get("/v1/models/test").json()["limits"]
    assert (limits["n"], limits["stop"], limits["stop_bytes"], limits["top_logprobs"]) == (16, 4, 256, 20)
    assert limits["body_bytes"] == 4 << 20
    for fields in ({"n": 17}, {"stop": ["x"] * 5}, {"stop": "x" * 257}, {"logprobs": True, "top_logprobs": 21}):
        assert server.chat(**fields).status_code == 400
    nested: Any = "x"
    for _ in range(MAX_DEPTH + 1):
        nested = [nested]
    assert server.chat(metadata=nested).json()["error"]["code"] == "too_deep"
    assert server.chat().status_code == 200
