"""Who gets in: every path, with every kind of credential, in every spelling. Keys come and go while the server runs."""

import errno
import http.client
import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from tests.server.running import Server, Start
from tests.server.test_lifecycle import wait_until

from freehold.access import key_table
from freehold.access.database import connect, path_in
from freehold.access.keys import ENDPOINTS, Key, KeyLimits, Scope
from freehold.config import ServeConfig
from freehold.errors import ConfigError, StateError
from freehold.serve import endpoints
from freehold.serve.endpoint import ANY_KEY, NO_KEY
from freehold.serve.entrance.access import open_access

GIVEN = "an-operators-key"
PROBES = {"/livez", "/readyz", "/health"}
PAGE = {"/", "/page/{name}"}
"""The live page's own files, which hold no data."""


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


def make_key(state: Path, name: str, **fields: Any) -> tuple[Key, str]:
    fields = {"scope": Scope(), "limits": KeyLimits(), "now_s": time.time(), "expires_s": None, **fields}
    with closing(connect(path_in(state))) as connection:
        return key_table.create(connection, name, **fields)


@pytest.fixture
def closed(start: Start) -> Server:
    """A server that needs a key, of which there is one."""
    server = start(api_keys=(GIVEN,))
    server.says("ok")
    return server


def ask(server: Server, method: str, target: str, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    """A request whose target is sent as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = json.dumps({"model": "test", "messages": server.messages}) if method == "POST" else None
    connection.request(method, target, body, {"Content-Type": "application/json", **(headers or {})})
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def routes(server: Server) -> Iterator[tuple[str, str]]:
    """Method and path of everything that the application answers."""
    for route in server.routes:
        for method in route.methods or ():
            yield method, route.path.replace("{model:path}", "test")


BAD = [
    {},
    {"Authorization": "Bearer wrong"},
    {"Authorization": f"Bearer {GIVEN}x"},
    {"Authorization": f"Bearer {GIVEN[:-1]}"},
    {"Authorization": GIVEN},
    {"Authorization": f"Basic {GIVEN}"},
    {"Authorization": "Bearer"},
    {"Authorization": "Bearer "},
    {"x-api-key": ""},
    {"x-api-key": "wrong"},
    {"x-api-key": "wrong", "Authorization": f"Bearer {GIVEN}"},
    {"x-api-key": "fh-abcdefgh-wrong"},
    {"Cookie": f"key={GIVEN}"},
]


def spellings(path: str) -> set[str]:
    """Ways to write a path that some part of a server might take for another."""
    encoded = "".join(f"%{ord(char):02x}" if char.isalpha() else char for char in path)
    return {
        path, f"{path}/", f"/{path}", f"{path}//", encoded, f"{path}?key={GIVEN}", f"/livez/..{path}", f"/./{path[1:]}",
        f"/livez%2f..{path}", f"{path};/livez", f"{path}%00", f"{path}%2f", path.upper(), f"http://localhost{path}",
        f"{path}#/livez", f"/page/..{path}", f"/page/..%2f{path[1:]}",
    }  # fmt: skip


@pytest.mark.parametrize("credentials", BAD, ids=str)
def test_without_a_valid_key_nothing_but_probes_and_page_answers(closed: Server, credentials: dict[str, str]) -> None:
    for method, path in [
        *routes(closed),
        ("GET", "/nothing"),
        ("DELETE", "/v1/models"),
        ("GET", "/docs"),
    ]:
        if path not in PROBES | PAGE:
            status, body = ask(closed, method, path, credentials)
            assert status == 401, (method, path)
            assert method == "HEAD" or json.loads(body)["error"]["type"] == "authentication_error"
    assert closed.engine.ledger().received == 0


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH", "TRACE", "FOO"])
def test_no_spelling_of_a_path_gets_around_the_key(closed: Server, method: str) -> None:
    paths = {path for _, path in routes(closed)} - PROBES - PAGE
    for target in set.union(*map(spellings, sorted(paths))):
        assert ask(closed, method, target)[0] in (400, 401), (method, target)
    assert closed.engine.ledger().received == 0


def test_probes_need_no_key(closed: Server) -> None:
    for path in PROBES:
        assert closed.http.get(path).status_code == 200
        assert closed.http.get(path, headers={"Authorization": "Bearer wrong"}).status_code == 200


@pytest.mark.parametrize(
    "credentials",
    [
        {"Authorization": f"Bearer {GIVEN}"},
        {"Authorization": f"bearer  {GIVEN}"},
        {"x-api-key": GIVEN},
        {"x-api-key": GIVEN, "Authorization": f"Bearer {GIVEN}"},
    ],
    ids=str,
)
def test_a_valid_key_may_do_everything(closed: Server, credentials: dict[str, str]) -> None:
    assert closed.http.get("/v1/models", headers=credentials).status_code == 200
    answer = closed.http.post("/v1/completions", headers=credentials, json={"model": "test", "prompt": closed.hi})
    assert answer.json()["choices"][0]["text"] == "ok"
    assert closed.http.get("/nothing", headers=credentials).status_code == 404


def test_a_challenge_says_what_is_missing(closed: Server) -> None:
    answer = closed.http.get("/v1/models")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["x-request-id"]
    assert GIVEN not in answer.text
    with pytest.raises(openai.AuthenticationError) as caught:
        closed.openai.models.list()
    assert caught.value.code == "invalid_api_key"


def test_each_of_several_given_keys_works(start: Start) -> None:
    server = start(api_keys=("first-key", "second-key"))
    for key in ("first-key", "second-key"):
        assert server.http.get("/v1/models", headers={"x-api-key": key}).status_code == 200
    for first, second in (("first-key", "second-key"), ("second-key", "first-key")):
        both = {"x-api-key": first, "Authorization": f"Bearer {second}"}
        assert server.http.get("/v1/models", headers=both).status_code == 401, "whose request would it be?"


def test_every_route_says_what_a_key_must_allow(closed: Server) -> None:
    assert {endpoint.path for endpoint in endpoints.ENDPOINTS if endpoint.needs == NO_KEY} == PROBES | PAGE
    for endpoint in endpoints.ENDPOINTS:
        assert endpoint.needs in {*ENDPOINTS, ANY_KEY, NO_KEY}, endpoint.path
    offered = {endpoint.needs for endpoint in endpoints.ENDPOINTS}
    assert set(ENDPOINTS) <= offered, "keys are offered no endpoint that the server lacks"


def test_scopes(start: Start, state: Path) -> None:
    server = start(state_dir=state, profile=False)
    server.says("ok")

    def statuses(**scope: Any) -> dict[str, int]:
        _, secret = make_key(state, f"scoped {scope}", scope=Scope(**scope))
        server.service.gatekeeper.reload()
        wait_until(lambda: server.service.gatekeeper.recognize(secret) is not None)
        headers = {"x-api-key": secret}
        found = {
            name: server.http.post(path, headers=headers, json={"model": "test", **body}).status_code
            for name, path, body in (
                ("chat", "/v1/chat/completions", {"messages": server.messages}),
                ("completions", "/v1/completions", {"prompt": server.hi}),
                ("debug", "/debug/profile", {}),
            )
        }
        listed = server.http.get("/v1/models", headers=headers).json()["data"]
        return {**found, "models": len(listed), "nothing": server.http.get("/nothing", headers=headers).status_code}

    usual = {"chat": 200, "completions": 200, "debug": 403, "models": 1, "nothing": 404}
    assert statuses() == usual
    assert statuses(is_admin=True) == {**usual, "debug": 404}
    assert statuses(endpoints=("chat",)) == {**usual, "completions": 403}
    assert statuses(endpoints=("debug",)) == {**usual, "chat": 403, "completions": 403, "debug": 404}
    assert statuses(models=("test", "other")) == usual
    assert statuses(models=("other",)) == {**usual, "chat": 403, "completions": 403, "models": 0}


def test_keys_come_and_go_without_a_restart(start: Start, tmp_path: Path) -> None:
    server = start(state_dir=tmp_path)
    server.says("ok")
    assert server.chat().status_code == 200, "no key exists"
    key, secret = make_key(tmp_path, "first")
    wait_until(lambda: server.chat().status_code == 401)
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=secret, max_retries=0)
    assert client.chat.completions.create(model="test", messages=server.messages).choices[0].message.content == "ok"
    with closing(connect(path_in(tmp_path))) as connection:
        key_table.revoke(connection, key.key_id, now_s=time.time())
    wait_until(lambda: server.http.get("/v1/models", headers={"x-api-key": secret}).status_code == 401)
    client.close()


def test_a_key_expires(start: Start, tmp_path: Path) -> None:
    _, secret = make_key(tmp_path, "brief", expires_s=time.time() + 1)
    server = start(state_dir=tmp_path)
    headers = {"x-api-key": secret}
    assert server.http.get("/v1/models", headers=headers).status_code == 200
    wait_until(lambda: server.http.get("/v1/models", headers=headers).status_code == 401)


def test_a_revoked_key_may_finish_what_runs(start: Start, tmp_path: Path) -> None:
    key, secret = make_key(tmp_path, "busy")
    server = start(state_dir=tmp_path)
    server.says(*["word "] * 200)
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=secret, max_retries=0)
    stream = client.chat.completions.create(model="test", messages=server.messages, stream=True)
    parts = [next(stream)]
    with closing(connect(path_in(tmp_path))) as connection:
        key_table.revoke(connection, key.key_id, now_s=time.time())
    parts += stream
    assert parts[-1].choices[0].finish_reason == "stop"
    client.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_other_machines_are_let_in_by_key_only(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="keys create"):
        open_access(ServeConfig(host=host, state_dir=tmp_path))
    for config in (ServeConfig(host=host, api_keys=(GIVEN,)), ServeConfig(host=host, allow_no_key=True)):
        open_access(config).close()
    make_key(tmp_path, "first")
    open_access(ServeConfig(host=host, state_dir=tmp_path)).close()


def test_a_store_that_cant_be_written_holds_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Serving a read-only store goes on without a ledger. It still needs a key to listen to others."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    gatekeeper = open_access(ServeConfig(state_dir=tmp_path / "state"))
    assert gatekeeper.anyone is not None
    assert "Read-only file system" in caplog.text
    with pytest.raises(ConfigError):
        open_access(ServeConfig(state_dir=tmp_path / "state", host="0.0.0.0"))


def test_keys_that_cant_be_read_are_no_reason_to_let_anyone_in(tmp_path: Path) -> None:
    make_key(tmp_path, "first")
    path_in(tmp_path).write_bytes(b"no database" * 1000)
    with pytest.raises(StateError, match=r"keys\.sqlite"):
        open_access(ServeConfig(state_dir=tmp_path))
    path_in(tmp_path).unlink()
    path_in(tmp_path).mkdir()
    with pytest.raises(StateError):
        open_access(ServeConfig(state_dir=tmp_path))


def test_keys_keep_what_is_cached_apart(start: Start) -> None:  # se-10
    """se-10: the same prompt is no hit for another key, nor for one who makes up the other's salt."""
    server = start(api_keys=("first-key", "second-key"))
    server.says("ok")
    prompt = f"{server.hi} " + "word " * 200

    def cached(key: str, **fields: Any) -> int:
        body = {"model": "test", "prompt": prompt, **fields}
        answer = server.http.post("/v1/completions", headers={"x-api-key": key}, json=body).json()
        tokens: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        return tokens

    assert cached("first-key") == 0
    assert cached("first-key") > 100
    for salt in ({}, {"cache_salt": "api-key-1"}, {"cache_salt": "api-key-1 "}, {"cache_salt": " "}):
        assert cached("second-key", **salt) == 0
    assert cached("second-key") > 100


def test_a_reload_reads_the_keys_at_once(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from freehold.access import bookkeeper

    monkeypatch.setattr(bookkeeper, "POLL_S", 3600.0)
    server = start(state_dir=tmp_path)
    _, secret = make_key(tmp_path, "first")
    time.sleep(0.1)
    assert server.http.get("/v1/models").status_code == 200, "it hasn't looked yet"
    server.service.gatekeeper.reload()
    wait_until(lambda: server.http.get("/v1/models").status_code == 401)
    assert server.http.get("/v1/models", headers={"x-api-key": secret}).status_code == 200


def test_anthropics_client_has_a_key_too(start: Start) -> None:
    server = start(api_keys=(GIVEN,))
    server.says("ok")
    ask = {"model": "test", "messages": server.messages, "max_tokens": 5}
    with anthropic.Anthropic(base_url=server.url, api_key=GIVEN, max_retries=0) as client:
        assert client.messages.create(**ask).content[0].text == "ok"
        assert client.messages.count_tokens(model="test", messages=server.messages).input_tokens > 0
    with (
        anthropic.Anthropic(base_url=server.url, api_key="another-key", max_retries=0) as client,
        pytest.raises(anthropic.AuthenticationError) as caught,
    ):
        client.messages.create(**ask)
    error = caught.value.body
    assert (error["type"], error["error"]["type"]) == ("error", "authentication_error")
    (used,) = server.service.counts.used.values()
    assert used.requests == 1, "counting tokens isn't generating"
