"""The life of a serving process: bind, load, answer, drain, stop.

On SIGTERM or Ctrl-C, and always with exit code 0:

- While the model loads, the process ends at once.
- The first one while serving: ``/readyz`` says 503, new requests are refused with 503, what runs may finish until the
  deadline.
- At the deadline, or with a second one: what still runs ends with an error event.

An engine that dies is started again. One that can't be ends the server, with an error.
"""

import asyncio
import json
import logging
import os
import shlex
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import uvicorn

from freehold import __version__
from freehold.access.gatekeeper import Gatekeeper
from freehold.amounts import amount
from freehold.config import EngineConfig, ServeConfig
from freehold.engine.aio import AsyncEngine
from freehold.engine.handle import EngineHandle
from freehold.engine.remote import ProcessEngine
from freehold.errors import ConfigError, EngineError, ResourceError
from freehold.files.model import open_model
from freehold.files.vocabulary import TextAssets, load_text
from freehold.garbage import spare_collections
from freehold.grammar.compiler import GrammarCompiler
from freehold.observe import render
from freehold.serve.app import build_app
from freehold.serve.batches.lane import BatchLane
from freehold.serve.chat.dialect import dialect_of
from freehold.serve.chat.prompt import warn_of_hidden_tools
from freehold.serve.entrance.access import open_access
from freehold.serve.entrance.connection import Connection
from freehold.serve.entrance.descriptors import max_connections
from freehold.serve.live.board import Board
from freehold.serve.operation.counts import Counts
from freehold.serve.operation.profiler import Profiler
from freehold.serve.operation.timings import Timings
from freehold.serve.recording import open_flight_recorder
from freehold.serve.service import Service
from freehold.serve.tracing.tracing import Tracing, require_opentelemetry
from freehold.serve.warmup import read_prefixes
from freehold.setting_kinds import format_size

BACKLOG = 2048
KEEP_ALIVE_S = 60
LAST_WORDS_S = 5
"""Time for the error events of requests that were cut short to reach their clients."""
LAST_SPANS_S = 3.0
"""Time for the last spans to be sent."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_POLL_S = 0.02
_WATCH_S = 0.25

_log = logging.getLogger(__name__)


class _Uvicorn(uvicorn.Server):
    """Uvicorn without its signal handlers: ours drain first."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(config: ServeConfig) -> socket.socket:
    """Reserve the address, before anything slow is done. Clients can connect once the server listens.

    Raises:
        ResourceError: the port is taken, or the address isn't this machine's.
    """
    with ExitStack() as failing:
        try:
            infos = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, kind, protocol, _, address = infos[0]
            listener = failing.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            # Two processes may bind the same port, but only one may listen.
            listener.listen(BACKLOG)
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ResourceError(
                f"can't listen on {config.host} port {config.port}: {reason}; choose another with --port or --host"
            ) from None
        failing.pop_all()
    listener.setblocking(False)
    return listener


def serve(engine_config: EngineConfig, config: ServeConfig, engine: ProcessEngine | None = None) -> None:
    """Serve one model until a signal ends it.

    Args:
        engine: loads this configuration already, in its process; None loads it in a thread of this one.

    Raises:
        UserError: the keys can't be read, the port is taken, the model can't be read, run, or doesn't fit, or a prefix
            to warm up is wrong.
        EngineError: the engine has failed for good.
    """
    if config.warmup_prefixes is not None:
        if not engine_config.prefix_caching:
            raise ConfigError("--warmup-prefixes needs the prefix cache; leave --no-enable-prefix-caching out")
        read_prefixes(config.warmup_prefixes)  # a mistake there needn't wait for the model
    if config.tracing is not None:
        require_opentelemetry()
    gatekeeper = open_access(config)
    listener = bind(config)
    try:
        with asyncio.Runner() as runner:
            runner.run(_serve(engine_config, config, listener, gatekeeper, engine))
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # it is leaving already
        listener.close()
        gatekeeper.close()


def build_service(
    engine: AsyncEngine, text: TextAssets, config: ServeConfig, gatekeeper: Gatekeeper | None = None
) -> Service:
    """What the server of one model shares. Called in its event loop, where profiles are taken from now on if they
    shall.

    Args:
        gatekeeper: who may enter; None: whoever brings one of the configuration's keys.
    """
    gatekeeper = gatekeeper or Gatekeeper(config.api_keys)
    profiler = Profiler(engine) if config.profile else None
    if profiler is not None:
        profiler.start()
    gatekeeper.start()
    grammars = GrammarCompiler(text.tokenizer.token_texts, engine.engine.teach)
    batches = None if config.state_dir is None else BatchLane(config.state_dir / "batches", config)
    tracing = None if config.tracing is None else Tracing(config.tracing, config.served_model_name)
    counts = Counts(Timings(engine.engine.info.max_model_len))
    board = Board(engine.engine, counts, gatekeeper.name_of)
    board.start()
    recording = None if config.record.folder is None else open_flight_recorder(engine.engine, text, config)
    return Service(
        engine,
        text,
        config,
        grammars,
        dialect_of(text, config),
        gatekeeper,
        counts,
        board,
        profiler,
        batches,
        tracing,
        recording,
    )


def build_server(service: Service) -> uvicorn.Server:
    """The HTTP server of a service, to be given a listening socket; it leaves signals alone. Called in its loop."""
    return _Uvicorn(
        uvicorn.Config(
            build_app(service),
            http=Connection,
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            # One more than may be, so that `Connection` closes it before uvicorn answers in words of its own.
            limit_concurrency=max_connections() + 1,
            timeout_keep_alive=KEEP_ALIVE_S,
            # Past the moment at which the last connection is cut, so that nothing is left to be cancelled.
            timeout_graceful_shutdown=LAST_WORDS_S + 1,
        )
    )


async def _serve(
    engine_config: EngineConfig,
    config: ServeConfig,
    listener: socket.socket,
    gatekeeper: Gatekeeper,
    process: ProcessEngine | None,
) -> None:
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for number in _SIGNALS:
        loop.add_signal_handler(number, signals.put_nowait, number)
    engine, text = await _load_or_leave(engine_config, signals, process)
    service = build_service(AsyncEngine(engine), text, config, gatekeeper)
    loop.add_signal_handler(signal.SIGHUP, gatekeeper.reload)
    server = build_server(service)
    spare_collections()
    drained = loop.create_task(drain(service, signals, server))
    watching = loop.create_task(_watch(engine, server))
    _log.info("%s", _announcement(service, listener))
    await asyncio.to_thread(warn_of_hidden_tools, service)
    info = service.info
    if engine_config.max_model_len is None and info.max_model_len < info.max_position:
        _log.warning(
            "requests may have %d tokens, not the %d that the model was trained for: the KV cache holds no more; raise "
            "--kv-cache-memory-bytes", info.max_model_len, info.max_position,
        )  # fmt: skip
    _log.info("try: %s", _example(config, _url(config, listener)))
    try:
        await server.serve(sockets=[listener])
        if engine.fault:
            raise EngineError(engine.fault, code="engine_failed")
        await drained
        if service.profiler is not None and service.profiler.tally is not None:
            print(render.text(service.profiler.tally.report()), end="", flush=True)
    finally:
        for task in (watching, drained):
            task.cancel()
        if service.batches is not None:
            await service.batches.stop()
        if service.tracing is not None:
            service.tracing.close(LAST_SPANS_S)
        service.lanes.close()
        service.grammars.close()
        if service.recording is not None:
            service.recording.close()
        if text.template is not None:
            text.template.close()


async def _watch(engine: EngineHandle, server: uvicorn.Server) -> None:
    """Stop the server once the engine has failed for good: whoever started it may start it anew."""
    while not engine.fault:
        await asyncio.sleep(_WATCH_S)
    server.should_exit = True


async def _load_or_leave(
    config: EngineConfig, signals: "asyncio.Queue[signal.Signals]", process: ProcessEngine | None
) -> tuple[EngineHandle, TextAssets]:
    """Load engine and vocabulary in a thread; on a signal, end the process."""
    loop = asyncio.get_running_loop()
    loading: asyncio.Future[tuple[EngineHandle, TextAssets]] = loop.create_future()

    def load() -> None:
        try:
            loop.call_soon_threadsafe(loading.set_result, _load(config, process))
        except Exception as error:
            loop.call_soon_threadsafe(loading.set_exception, error)

    threading.Thread(target=load, name="load", daemon=True).start()
    leaving = loop.create_task(signals.get())
    either: list[asyncio.Future[Any]] = [loading, leaving]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if leaving.done():
        _log.info("stopped while the model was loading")
        logging.shutdown()
        # Loading can't be interrupted, and nothing has been written or accepted.
        os._exit(0)
    leaving.cancel()
    return loading.result()


def _load(config: EngineConfig, process: ProcessEngine | None) -> tuple[EngineHandle, TextAssets]:
    with open_model(config.model_path, cache_dir=config.cache_dir) as files:
        text = load_text(files)
    if text.template is not None:
        text.template.start()
    try:
        if process is not None:
            process.wait()
            return process, text
        # Brings the backends along, which are of no use here if the engine has a process of its own.
        from freehold.engine.client import Engine

        return Engine.start(config), text
    except BaseException:
        if text.template is not None:
            text.template.close()
        raise


async def drain(service: Service, signals: "asyncio.Queue[signal.Signals]", server: uvicorn.Server) -> None:
    """Wait for the first signal, then for what runs: until it has ended, the deadline, or the second signal. Then stop
    engine and server."""
    first = await signals.get()
    service.load.is_draining = True
    if service.batches is not None:
        await service.batches.stop()  # the next server goes on with them
    timeout_s = service.config.shutdown_timeout_s
    if service.load.num_answers:
        _log.info(
            "%s: %s may finish within %g s; a second signal ends them now",
            first.name, amount(service.load.num_answers, "answer"), timeout_s,
        )  # fmt: skip
    else:
        _log.info("%s: nothing runs, stopping", first.name)
    second = asyncio.ensure_future(signals.get())
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    while service.load.num_answers and not second.done() and asyncio.get_running_loop().time() < deadline_s:
        await asyncio.sleep(_POLL_S)
    second.cancel()
    if service.load.num_answers:
        _log.warning("cut short: %s", amount(service.load.num_answers, "answer"))
    if service.profiler is not None:
        await service.profiler.close()
    await asyncio.to_thread(service.engine.engine.shutdown, 0.0)
    for connection in _connections(server):
        connection.close_unless_answering()
    asyncio.get_running_loop().call_later(LAST_WORDS_S, _abort_all, server)
    server.should_exit = True


def _connections(server: uvicorn.Server) -> list[Connection]:
    return [connection for connection in server.server_state.connections if isinstance(connection, Connection)]


def _abort_all(server: uvicorn.Server) -> None:
    """Cut connections whose clients still don't take their last words."""
    for connection in _connections(server):
        connection.transport.abort()


def _url(config: ServeConfig, listener: socket.socket) -> str:
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"http://{host}:{listener.getsockname()[1]}/v1"


def _example(config: ServeConfig, url: str) -> str:
    """A command that asks the server something, to be copied."""
    body = {"model": config.served_model_name, "messages": [{"role": "user", "content": "Hello"}]}
    text = shlex.quote(json.dumps(body, ensure_ascii=False))
    return f"curl {url}/chat/completions -H 'Content-Type: application/json' -d {text}"


def _announcement(service: Service, listener: socket.socket) -> str:
    """What is served, where, and what the memory went to."""
    info, config = service.info, service.config
    num_full = info.kv_tokens // info.max_model_len
    return (
        f"Freehold {__version__} serves {config.served_model_name} ({info.model_family}, {info.backend}) "
        f"at {_url(config, listener)}; weights {format_size(info.weight_bytes)}, KV cache {info.kv_tokens} tokens "
        f"({format_size(info.kv_bytes)}), scratch {format_size(info.scratch_bytes)}; "
        f"{amount(num_full, 'full-length request')} of {info.max_model_len} tokens "
        f"{'fits' if num_full == 1 else 'fit'}; loaded in {info.load_s:.2f} s; "
        f"live page at {_url(config, listener).removesuffix('v1')}"
    )
