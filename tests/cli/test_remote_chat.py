"""``freehold chat --url`` against servers that refuse, fail and talk nonsense."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from freehold import resolve
from freehold.cli.conversation import converse
from freehold.cli.remote_model import RemoteModel
from freehold.errors import ConfigError, RequestError, ResourceError
from freehold.text.params import SamplingParams

DEEP_EVENT = b'data: {"error": ' + 100_000 * b"[" + 100_000 * b"]" + b"}\n\n"
GOOD = [{"choices": [{"delta": {"role": "assistant"}}]}, {"choices": [{"delta": {"content": "Hello"}}]}]


def stream(*events: object) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"


class Answers(BaseHTTPRequestHandler):
    """Gives the answers that the server was told to, in turn."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.keys.append(self.headers["authorization"])  # type: ignore[attr-defined]
        self._send(200, self.server.models)  # type: ignore[attr-defined]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._send(*self.server.answers.pop(0))  # type: ignore[attr-defined]

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        server.models, server.answers = b'{"data": [{"id": "m"}]}', []  # type: ignore[attr-defined]
        server.keys = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def remote(server: ThreadingHTTPServer, *answers: tuple[int, bytes], models: bytes | None = None) -> RemoteModel:
    server.answers = list(answers)  # type: ignore[attr-defined]
    if models is not None:
        server.models = models  # type: ignore[attr-defined]
    return RemoteModel(f"http://127.0.0.1:{server.server_port}/v1", None)


@pytest.mark.parametrize(
    ("status", "body", "kind", "part"),
    [
        (400, b'{"error": {"message": "too long"}}', RequestError, "400: too long"),
        (404, b'{"error": "no such model"}', RequestError, "404: no such model"),
        (422, b'{"detail": [{"msg": "bad"}]}', RequestError, "bad"),
        (400, b"[1]", RequestError, "400: Bad Request"),
        (400, b"\xff\xfe", RequestError, "400: Bad Request"),
        (400, b'{"error": {"code": 7}}', RequestError, "7"),
        (401, b"", RequestError, "401: Unauthorized"),
        (503, b'{"error": {"message": "draining"}}', ResourceError, "503: draining"),
        (500, b"<html>", ResourceError, "500: Internal"),
        (200, stream({"error": {"message": "it broke"}}), ResourceError, "it broke"),
        (200, stream({"error": "it broke"}), ResourceError, "it broke"),
        (200, stream(["strange"]), ResourceError, "strange"),
        (200, b"data: {\n\n", ResourceError, "no part of a chat completion"),
        (200, DEEP_EVENT, ResourceError, "no part of a chat completion"),
        (200, b"<html>hello</html>\n", ResourceError, "html"),
    ],
)  # fmt: skip
def test_failures_keep_their_reason(
    server: ThreadingHTTPServer, status: int, body: bytes, kind: type[Exception], part: str
) -> None:
    with pytest.raises(kind) as caught:
        list(remote(server, (status, body)).answer([], SamplingParams()))
    assert part in str(caught.value)
    assert str(server.server_port) in str(caught.value)


@pytest.mark.parametrize("models", [b"{}", b'{"data": []}', b"hello", b'{"data": [{}]}', b"[]"])
def test_a_server_without_a_list_of_models(server: ThreadingHTTPServer, models: bytes) -> None:
    with pytest.raises(ResourceError, match="--model"):
        remote(server, models=models)


def test_a_chat_goes_on_after_every_failure(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = stream(GOOD[1], {"error": {"message": "it broke"}})
    answers = [(400, b'{"error": "too long"}'), (500, b""), (200, broken), (200, stream(*GOOD))]
    model = remote(server, *answers)
    asked: list[int] = []

    def answer(messages: object, params: SamplingParams) -> Iterator[str]:
        asked.append(len(messages))  # type: ignore[arg-type]
        return model.answer(messages, params)  # type: ignore[arg-type]

    lines = iter(["one", "two", "three", "four"])
    monkeypatch.setattr("freehold.cli.conversation._read_line", lambda _is_terminal: next(lines, None))
    monkeypatch.setattr("freehold.cli.conversation._expect_utf8", lambda: None)
    assert not converse(answer, [], SamplingParams(), "m")
    said = capsys.readouterr()
    assert said.out == "Hello\nHello\n", "what is printed after an answer that broke off starts a line"
    assert [part in line for part, line in zip(("too long", "500", "it broke"), said.err.splitlines(), strict=True)]
    assert asked == [1, 1, 1, 1], "failed turns aren't remembered"


def test_a_key_is_sent_and_its_lack_is_told(server: ThreadingHTTPServer) -> None:
    RemoteModel(f"http://127.0.0.1:{server.server_port}/v1", None, "a-secret-key")
    remote(server)
    assert server.keys == ["Bearer a-secret-key", None]  # type: ignore[attr-defined]
    locked = remote(server, (401, b'{"error": {"message": "this server needs a key"}}'))
    with pytest.raises(RequestError, match=r"this server needs a key \(put it into FREEHOLD_API_KEY\)"):
        list(locked.answer([{"role": "user", "content": "x"}], SamplingParams()))


def test_the_first_key_of_the_variable_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, key in ((None, ""), ("", ""), ("a-first-key", "a-first-key"), ("a-first-key,a-second", "a-first-key")):
        monkeypatch.delenv("FREEHOLD_API_KEY", raising=False)
        if given is not None:
            monkeypatch.setenv("FREEHOLD_API_KEY", given)
        assert resolve.client_key() == key
    monkeypatch.setenv("FREEHOLD_API_KEY", "sho\nrt")
    with pytest.raises(ConfigError) as caught:
        resolve.client_key()
    assert "rt" not in str(caught.value)
