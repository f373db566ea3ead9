"""The application without a socket: thousands of requests a second."""

import asyncio
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from starlette.types import Message

from freehold.config import EngineConfig, ServeConfig
from freehold.engine.aio import AsyncEngine
from freehold.engine.client import Engine
from freehold.files.vocabulary import TextAssets
from freehold.serve.app import build_app
from freehold.serve.server import build_service

JSON_HEADERS = (("content-type", "application/json"),)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class InProcess:
    """A server of the scripted backend, which answers in this thread."""

    def __init__(self, text: TextAssets, engine_config: EngineConfig, **settings: Any) -> None:
        self._runner = asyncio.Runner()
        self.engine = Engine.start(engine_config)
        self._text = text
        self._config = ServeConfig(**{"port": 0, "served_model_name": "test", **settings})

    def __enter__(self) -> "InProcess":
        self._runner.__enter__()
        self._app = self._runner.run(self._build())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._service.batches is not None:
            self._runner.run(self._service.batches.stop())
        self._service.lanes.close()
        self._runner.__exit__(kind, error, trace)
        self.engine.shutdown(0)
        self.engine.ledger().check(0)

    async def _build(self) -> Any:
        self._service = build_service(AsyncEngine(self.engine), self._text, self._config)
        return build_app(self._service)

    def post(self, path: str, body: Any, headers: Iterable[tuple[str, str]] = JSON_HEADERS) -> Answer:
        """Send bytes as they are, and anything else as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.ask("POST", path, content, headers)

    def ask(self, method: str, path: str, content: bytes = b"", headers: Iterable[tuple[str, str]] = ()) -> Answer:
        return self._runner.run(self._ask(method, path, content, headers))

    async def _ask(self, method: str, path: str, content: bytes, headers: Iterable[tuple[str, str]]) -> Answer:
        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
            "headers": [(b"host", b"localhost"), *((name.encode(), value.encode()) for name, value in headers)],
        }  # fmt: skip
        sent: list[Message] = []
        to_come = [{"type": "http.request", "body": content, "more_body": False}]

        async def receive() -> Message:
            if to_come:
                return to_come.pop()
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

        async def send(message: Message) -> None:
            sent.append(message)

        begun_s = time.monotonic()
        await self._app(scope, receive, send)
        seconds = time.monotonic() - begun_s
        headers_sent = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], headers_sent, b"".join(part.get("body", b"") for part in sent[1:]), seconds)
