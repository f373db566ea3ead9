"""Prefixes that the operator wants computed before anybody asks: a file of them, pinned as long as the engine runs.

They are public: what all keys' requests begin with is computed once. No client's text ever becomes one.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import msgspec

from freehold.engine.aio import AsyncEngine
from freehold.errors import ConfigError, EngineError, RequestError
from freehold.foreign_json import NOT_JSON
from freehold.protocol import MAX_PINNED_SHARE, Finish, Generate, Pin
from freehold.serve import body as bodies
from freehold.serve.chat.prompt import render
from freehold.serve.schema import Body, ChatRequest
from freehold.serve.service import Service
from freehold.serve.wrong_field import MAX_SHOWN
from freehold.text.jobs import Handling, JobPlanner
from freehold.text.params import SamplingParams

SHARE = MAX_PINNED_SHARE / 2
"""Of the KV cache that prefixes may take. As much is left for what clients pin."""
MAX_FILE_BYTES = 64 << 20
MAX_TRIES = 3
"""So often may the engine fail on a prefix before it is left out."""
_RETRY_S = 0.5
_POLL_S = 0.25
_CHAT_FIELDS = frozenset({"messages", "tools", "chat_template_kwargs"})

_log = logging.getLogger(__name__)


class _Text(Body):
    """A line that is no chat."""

    text: str


_text_decoder = msgspec.json.Decoder(_Text)
_chat_decoder = msgspec.json.Decoder(ChatRequest)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])

Prefix = str | ChatRequest


def read_prefixes(path: Path) -> list[tuple[int, Prefix]]:
    """The prefixes in a file of JSON lines, and the numbers of their lines. A line is ``{"text": …}``, or
    ``{"messages": …}`` with ``tools`` and ``chat_template_kwargs`` as chats have them.

    Raises:
        ConfigError: the file can't be read, or a line is none of these; names line and field.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{path} is larger than {MAX_FILE_BYTES} bytes, too much for --warmup-prefixes")
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"can't read the prefixes in {path}: {error.strerror} (--warmup-prefixes)") from None
    prefixes: list[tuple[int, Prefix]] = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                prefixes.append((number, _read(line)))
            except RequestError as error:
                raise _wrong(path, number, error) from None
    return prefixes


class WarmUp:
    """Computes the prefixes, again if the engine starts again. Until that is done the server's load says so."""

    def __init__(self, service: Service, path: Path) -> None:
        """
        Raises:
            ConfigError: see `read_prefixes`; or a prefix doesn't become a prompt, or all together are too long.
        """
        self._service = service
        self._generates = list(_plan(service, path))
        self._num_done = 0
        self._num_starts = 0  # of the engine, when it was asked for them
        service.load.why_cold = self._why_cold

    def start(self) -> None:
        """Begin, in the running event loop."""
        self._task = asyncio.ensure_future(self._stay_warm())

    async def _stay_warm(self) -> None:
        while not self._service.load.is_draining:
            num_starts = self._service.engine.engine.num_starts
            if num_starts != self._num_starts:
                self._num_starts, self._num_done = num_starts, 0
                for generate in self._generates:
                    await self._compute(generate)
                    self._num_done += 1
            await asyncio.sleep(_POLL_S)

    def _why_cold(self) -> str:
        """Asked for at any time: an engine that has started again is cold before anybody has noticed."""
        is_new = self._service.engine.engine.num_starts != self._num_starts
        num_done, total = 0 if is_new else self._num_done, len(self._generates)
        return "" if num_done == total else f"{num_done} of {total} prefixes are warm"

    async def _compute(self, generate: Generate) -> None:
        for _ in range(MAX_TRIES):
            try:
                await _answer(self._service.engine, generate)
                return
            except EngineError as error:
                _log.warning("prefix %s isn't warm: %s", generate.request_id, error)
            await asyncio.sleep(_RETRY_S)


def _read(line: bytes) -> Prefix:
    """
    Raises:
        RequestError: it is no prefix.
    """
    try:
        fields = set(_fields_decoder.decode(line))
    except NOT_JSON:
        fields = set()  # the decoder of texts says what is wrong
    if "messages" not in fields:
        if fields and "text" not in fields:
            name = min(fields)[:MAX_SHOWN]
            raise RequestError(f"a prefix has no {name!r}; give text, or messages", param=name, code="unknown_field")
        return bodies.decode(line, _text_decoder).text
    if strangers := sorted(fields - _CHAT_FIELDS):
        raise RequestError(f"a prefix has no {strangers[0]}; remove it", param=strangers[0], code="unknown_field")
    chat = bodies.decode(line, _chat_decoder)
    chat.add_generation_prompt = False
    return chat


def _plan(service: Service, path: Path) -> Iterator[Generate]:
    """What the engine is asked for each prefix."""
    params = SamplingParams(max_tokens=1, temperature=0.0)
    num_left = int(SHARE * service.info.kv_tokens)
    for number, prefix in read_prefixes(path):
        name = f"line {number}"
        handling = Handling(is_public=True, pin=Pin(name=name, ttl_s=None))
        try:
            if isinstance(prefix, str):
                ids = service.text.tokenizer.encode(prefix)
            else:
                ids = render(service, prefix).encode(service.text.tokenizer)
            planner = JobPlanner(service.text.tokenizer, service.info, handling)
            (job,) = planner.plan(ids, params, request_id=f"warm-up-{number}", fresh_seed=0, param="prefix")
        except RequestError as error:
            raise _wrong(path, number, error) from None
        num_left -= len(ids)
        if num_left < 0:
            raise ConfigError(
                f"the prefixes in {path} up to line {number} have more than {int(SHARE * service.info.kv_tokens)} "
                f"tokens, {SHARE:.0%} of the KV cache; shorten them, or raise --kv-cache-memory-bytes"
            )
        yield job.generate


async def _answer(engine: AsyncEngine, generate: Generate) -> None:
    """
    Raises:
        EngineError: the engine didn't compute it.
    """
    async with aclosing(engine.generate(generate)) as events:
        async for event in events:
            if isinstance(event, Finish) and event.reason in ("failed", "cancelled"):
                raise EngineError(event.message or event.reason, code=event.code or event.reason)


def _wrong(path: Path, number: int, error: RequestError) -> ConfigError:
    field = f", field {error.param}" if error.param else ""
    return ConfigError(f"line {number} of {path}{field}: {error} (--warmup-prefixes)")
