"""A server that answers as it is told, and records what it did and when: the truth that the load tester is judged by.

Run as a program it prints its port. What it does with a request is told by the request itself, in the field ``stub`` of
its body (see `Behaviour`); a list of behaviours is taken in turns. Everything is written over bare asyncio streams.

``GET /truth`` gives what it recorded since it was asked last, on the clock of `time.perf_counter`, which all processes
of a machine share.
"""

import argparse
import asyncio
import json
import ssl
import sys
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any


@dataclass
class Behaviour:
    """How one request is answered.

    Attributes:
        first_s: until the first byte of the head; the first token follows at once.
        first_token_s: from the head until the first token.
        gap_s: between chunks.
        tokens: of the answer; None takes ``max_tokens``.
        per_chunk: tokens in each chunk.
        pieces: events that each token's text is spread over.
        segments: writes that each event is cut into, a pause between.
        stall_at, stall_s: before this chunk, wait so long.
        drop_at: hang up before this chunk.
        status, headers: of the answer; a status other than 200 comes without an answer.
        head_bytes: of one more header.
        comments: keep-alive comments between the chunks.
        late_usage_s: the usage comes so long after the last token.
        usage: whether any is sent; ``ids`` sends token ids in each chunk.
        counted: tokens that the usage says, instead of what was sent.
        done: whether the stream says that it is done.
        reasoning: so many chunks at the beginning are reasoning.
        fault: ``garbage`` for bytes that are no JSON, ``error`` for an error within the stream, ``cut`` for an end
            without saying so, ``http`` for bytes that are no HTTP, ``chunk`` for bytes that are no chunk.
        fault_at: before this chunk.
        line_end: of events.
        cached: tokens of the prompt that the usage calls cached.
        hangs_up: after the answer, though nothing in it said so.
        serial_s: requests of this behaviour are worked off one by one, and each takes so long before its first token.
        is_chunked: streams are chunked (RFC 9112, 7.1); else the end of the connection ends them.
    """

    first_s: float = 0.0
    first_token_s: float = 0.0
    gap_s: float = 0.0
    tokens: int | None = None
    per_chunk: int = 1
    pieces: int = 1
    segments: int = 1
    stall_at: int = -1
    stall_s: float = 0.0
    drop_at: int = -1
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    head_bytes: int = 0
    comments: bool = False
    late_usage_s: float = 0.0
    usage: bool = True
    counted: int | None = None
    done: bool = True
    ids: bool = False
    reasoning: int = 0
    tool: bool = False
    fault: str = ""
    fault_at: int = 0
    line_end: str = "\n"
    cached: int = 0
    hangs_up: bool = False
    serial_s: float = 0.0
    is_chunked: bool = True


@dataclass
class Truth:
    """What was done with one request.

    Attributes:
        received_s: when all of it had come.
        chunks_s: when each event with tokens was written (its last part, if it was cut).
        output_s: when the first one was written that isn't reasoning.
        ended_s: when the last token, or a whole answer, was written.
        connection: its number.
        body: as it came, without ``stub``.
    """

    received_s: float
    prompt_tokens: int
    output_tokens: int = 0
    chunks_s: list[float] = field(default_factory=list)
    output_s: float | None = None
    ended_s: float | None = None
    connection: int = 0
    body: dict[str, Any] = field(default_factory=dict)


class Stub:
    """The server."""

    def __init__(self, default: Any) -> None:
        """
        Args:
            default: behaviour, or several, where a request doesn't say.
        """
        self._default = default
        self._truths: dict[str, Truth] = {}
        self._num_requests = 0
        self._num_connections = 0
        self._row = asyncio.Lock()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self._num_connections += 1
        number = self._num_connections
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.decode().split("\r\n")
                headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines[1:])}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                path = lines[0].split()[1]
                if path in {"/v1/completions", "/v1/chat/completions"}:
                    await self._generate(path, headers, body, number, writer)
                else:
                    self._tell(path, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _tell(self, path: str, writer: asyncio.StreamWriter) -> None:
        answers: dict[str, Any] = {
            "/v1/models": {"data": [{"id": "stub", "meta": {"n_vocab": 1000}}]},
            "/truth": {key: asdict(truth) for key, truth in self._truths.items()},
        }
        if path == "/truth":
            self._truths = {}
        found = path in answers
        text = json.dumps(answers.get(path, {"error": "nothing here"})).encode()
        writer.write(f"HTTP/1.1 {200 if found else 404} X\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)

    async def _generate(
        self, path: str, headers: dict[str, str], raw: bytes, connection: int, writer: asyncio.StreamWriter
    ) -> None:
        received_s = perf_counter()
        body = json.loads(raw)
        told = body.pop("stub", self._default)
        if isinstance(told, list):
            told = told[self._num_requests % len(told)]
        self._num_requests += 1
        how = Behaviour(**told)
        prompt = body.get("prompt") or body.get("messages")
        truth = Truth(received_s, len(prompt), connection=connection, body=body)
        self._truths[headers.get("x-request-id", str(self._num_requests))] = truth
        await asyncio.sleep(how.first_s)
        if how.serial_s:
            async with self._row:
                await asyncio.sleep(how.serial_s)
        if how.status != 200:
            text = b'{"error": {"message": "told to fail"}}'
            extra = "".join(f"{name}: {value}\r\n" for name, value in how.headers.items())
            writer.write(f"HTTP/1.1 {how.status} X\r\n{extra}Content-Length: {len(text)}\r\n\r\n".encode() + text)
            return
        if how.fault == "http":
            writer.write(b"this is no HTTP\r\n\r\n")
            raise ConnectionError
        answer = _Answer(path, how, truth, writer)
        await (answer.stream if body.get("stream") else answer.whole)(body.get("max_tokens", 16))
        if how.hangs_up or not how.is_chunked:
            raise ConnectionError


class _Answer:
    """Writes one answer."""

    def __init__(self, path: str, how: Behaviour, truth: Truth, writer: asyncio.StreamWriter) -> None:
        self._is_chat = "chat" in path
        self._how = how
        self._truth = truth
        self._writer = writer

    async def whole(self, max_tokens: int) -> None:
        num = self._how.tokens or max_tokens
        await asyncio.sleep(self._how.first_token_s + self._how.gap_s * (num - 1))
        content = {"message": {"content": "x " * num}} if self._is_chat else {"text": "x " * num}
        text = json.dumps({"choices": [{**content, "finish_reason": "length"}], "usage": self._usage(num)}).encode()
        self._truth.output_tokens, self._truth.ended_s = num, perf_counter()
        self._writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)

    async def stream(self, max_tokens: int) -> None:
        how, num = self._how, self._how.tokens or max_tokens
        framing = "Transfer-Encoding: chunked\r\n" if how.is_chunked else ""
        framing += f"X-Filler: {'x' * how.head_bytes}\r\n" if how.head_bytes else ""
        self._writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{framing}\r\n".encode())
        if self._is_chat:
            await self._event({"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
        await asyncio.sleep(how.first_token_s)
        for index, start in enumerate(range(0, num, how.per_chunk)):
            await self._before(index)
            is_last = start + how.per_chunk >= num
            await self._chunk(index, min(how.per_chunk, num - start), is_last=is_last)
        await asyncio.sleep(how.late_usage_s)
        if how.usage:
            await self._event({"choices": [], "usage": self._usage(num)})
        if how.done:
            self._put(f"data: [DONE]{how.line_end * 2}".encode())
        self._end()

    async def _before(self, index: int) -> None:
        """What happens before a chunk."""
        how = self._how
        if index:
            await asyncio.sleep(how.gap_s)
        if index == how.stall_at:
            await asyncio.sleep(how.stall_s)
        if index == how.drop_at:
            self._writer.transport.abort()
            raise ConnectionError
        if how.comments:
            self._put(f": keep-alive{how.line_end * 2}".encode())
        if how.fault and index == how.fault_at:
            if how.fault == "garbage":
                self._put(b"data: {not json\n\n")
            elif how.fault == "error":
                await self._event({"error": {"message": "told to fail"}})
            elif how.fault == "chunk":
                self._writer.write(b"so many bytes\r\n")
            self._end()
            await asyncio.sleep(0.2)
            raise ConnectionError

    async def _chunk(self, index: int, num: int, *, is_last: bool) -> None:
        """Tokens, in one event or several."""
        text = "word " * num
        size = -(-len(text) // self._how.pieces)
        for number in range(self._how.pieces):
            ends = number == self._how.pieces - 1
            choice = self._choice(index, text[number * size : (number + 1) * size])
            if self._how.ids and ends:
                choice["token_ids"] = [7] * num
            choice["finish_reason"] = "length" if is_last and ends else None
            await self._event({"choices": [choice]})
            self._truth.chunks_s.append(self._last_write_s)
            if self._truth.output_s is None and index >= self._how.reasoning:
                self._truth.output_s = self._last_write_s
        self._truth.output_tokens += num
        self._truth.ended_s = self._last_write_s

    def _choice(self, index: int, text: str) -> dict[str, Any]:
        if not self._is_chat:
            return {"text": text}
        if index < self._how.reasoning:
            return {"delta": {("reasoning", "reasoning_content")[index % 2]: text}}
        if self._how.tool:
            return {"delta": {"tool_calls": [{"index": 0, "id": "call-1", "function": {"arguments": text}}]}}
        return {"delta": {"content": text}}

    async def _event(self, data: dict[str, Any]) -> None:
        """Write an event, in one part or several."""
        end = self._how.line_end
        event = f"data: {json.dumps(data, ensure_ascii=False)}{end}{end}".encode()
        size = -(-len(event) // self._how.segments)
        for start in range(0, len(event), size):
            if start:
                await asyncio.sleep(0.002)
            self._put(event[start : start + size])

    def _put(self, part: bytes) -> None:
        self._last_write_s = perf_counter()
        self._writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n" if self._how.is_chunked else part)

    def _end(self) -> None:
        if self._how.is_chunked:
            self._writer.write(b"0\r\n\r\n")

    def _usage(self, num: int) -> dict[str, Any]:
        return {
            "prompt_tokens": self._truth.prompt_tokens,
            "completion_tokens": num if self._how.counted is None else self._how.counted,
            "prompt_tokens_details": {"cached_tokens": self._how.cached},
        }


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--certificate")
    parser.add_argument("--default", type=json.loads, default={}, help="behaviour where a request doesn't say, as JSON")
    arguments = parser.parse_args()
    tls = None
    if arguments.certificate:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(arguments.certificate)
    stub = Stub(arguments.default)
    server = await asyncio.start_server(stub.serve, "127.0.0.1", 0, ssl=tls, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        # Whoever started this closes its standard input when it ends.
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
