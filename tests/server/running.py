"""A server on a real socket, over the scripted backend, and what its model says."""

import asyncio
import re
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

import httpx
import openai
from starlette.applications import Starlette
from starlette.routing import Route

from freehold.backends.script import Item, Scripts
from freehold.config import EngineConfig, ServeConfig
from freehold.engine.aio import AsyncEngine
from freehold.engine.client import Engine
from freehold.engine.handle import EngineHandle
from freehold.files.vocabulary import TextAssets
from freehold.serve import server as lifecycle
from freehold.serve.app import build_app
from freehold.serve.entrance.access import open_access
from freehold.serve.server import bind, build_server, build_service, drain

TIMEOUT_S = 60.0


class Server:
    """A server in a thread, and what its model says."""

    def __init__(
        self,
        text: TextAssets,
        engine_config: EngineConfig,
        *,
        handle: EngineHandle | None = None,
        send_buffer_bytes: int | None = None,
        **settings: Any,
    ) -> None:
        """
        Args:
            send_buffer_bytes: what the system may hold for a client that doesn't read; None leaves it alone.
            handle: the engine to use; None starts one in a thread, which says what `says` was given.
        """
        self._said: list[tuple[Item, ...]] = [(0,)]
        self.text = text
        self.tokenizer = text.tokenizer
        self.scripts = Scripts(self._script)
        self.engine = handle or Engine.start(engine_config, scripts=self.scripts)
        config = ServeConfig(**{"port": 0, "served_model_name": "test", **settings})
        self._config = config
        listener = bind(config)
        if send_buffer_bytes is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        self.port: int = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(listener,), daemon=True)
        self._thread.start()
        assert self._started.wait(TIMEOUT_S)
        self.http = httpx.Client(base_url=self.url, timeout=TIMEOUT_S)
        self.openai = openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=TIMEOUT_S)

    def _run(self, listener: Any) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._serve(listener))

    async def _serve(self, listener: Any) -> None:
        self._loop, self._signals = asyncio.get_running_loop(), asyncio.Queue[signal.Signals]()
        gatekeeper = open_access(self._config)
        self.service = build_service(AsyncEngine(self.engine), self.text, self._config, gatekeeper)
        server = build_server(self.service)
        draining = self._loop.create_task(drain(self.service, self._signals, server))
        self._started.set()
        await server.serve(sockets=[listener])
        await draining
        if self.service.tracing is not None:
            self.service.tracing.close(lifecycle.LAST_SPANS_S)
        if self.service.recording is not None:
            self.service.recording.close()
        gatekeeper.close()

    @property
    def routes(self) -> list[Route]:
        """Everything that the application answers, behind guard and gate."""
        app: Any = build_app(self.service)
        while not isinstance(app, Starlette):
            app = app._app
        assert all(isinstance(route, Route) for route in app.routes), "the gate knows no other kinds of routes"
        return [route for route in app.routes if isinstance(route, Route)]

    def send_signal(self) -> None:
        """What SIGTERM does to a serving process."""
        self._loop.call_soon_threadsafe(self._signals.put_nowait, signal.SIGTERM)

    def join(self) -> None:
        """Wait until the server has stopped."""
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()

    def _script(self, prompt_ids: tuple[int, ...]) -> tuple[Item, ...]:
        """A prompt's answer never changes, as aborted requests may still be running: prompts name what `says` set."""
        numbered = re.search(r"Hi #(\d+)", self.tokenizer.decode(prompt_ids))
        return self._said[int(numbered[1]) if numbered else -1]

    @property
    def hi(self) -> str:
        """The prompt that is answered with what `says` was last given."""
        return f"Hi #{len(self._said) - 1}"

    def says(self, *items: Item | str, ends: bool = True) -> list[int]:
        """Let the model answer prompts from now on with these ids, texts and effects; returns the ids.

        Args:
            ends: finish with the model's end-of-turn id.
        """
        flat: list[Item] = []
        for item in items:
            flat += self.tokenizer.encode(item, add_bos=False) if isinstance(item, str) else [item]
        if ends:
            flat.append(self.end_id)
        self._said.append(tuple(flat))
        return [item for item in flat if isinstance(item, int)]

    @property
    def end_id(self) -> int:
        return min(self.tokenizer.eos_ids)

    @property
    def messages(self) -> list[Any]:
        return [{"role": "user", "content": self.hi}]

    def chat(self, **fields: Any) -> httpx.Response:
        return self.post("/v1/chat/completions", **{"messages": self.messages, **fields})

    def complete(self, **fields: Any) -> httpx.Response:
        return self.post("/v1/completions", **{"prompt": self.hi, **fields})

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.http.post(path, json={"model": "test", **body})

    def stop(self) -> None:
        """End the server; the engine's books must balance."""
        self.http.close()
        self.openai.close()
        if self._thread.is_alive():
            self.send_signal()
            self.send_signal()
        self.join()
        self.engine.ledger().check(0)
        assert self.engine._door.num_inside == 0
        assert self.service.load.num_answers == 0


Start = Callable[..., Server]
