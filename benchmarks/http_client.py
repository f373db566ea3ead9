"""One streamed completion over HTTP, with the time of every token.

Written over plain sockets: the client shares the processors with the server that it measures, and a full HTTP library
takes several times as long for each event.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class AnswerError(RuntimeError):
    """The server refused, or ended the answer early."""


@dataclass(slots=True)
class Answer:
    """What came back. Times are those of `time.perf_counter`.

    Attributes:
        sent_s: when the request left.
        arrivals_s: when each event with tokens came.
        token_ids: of the answer, as far as the server tells.
        num_prompt_tokens, num_output_tokens, num_cached_tokens: what the server counted.
    """

    sent_s: float
    arrivals_s: list[float] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    num_cached_tokens: int = 0

    @property
    def ttft_s(self) -> float:
        """From sending to the first token."""
        return self.arrivals_s[0] - self.sent_s

    @property
    def latency_s(self) -> float:
        """From sending to the last token."""
        return self.arrivals_s[-1] - self.sent_s

    @property
    def gaps_s(self) -> list[float]:
        """Between events with tokens."""
        return [later - earlier for earlier, later in zip(self.arrivals_s, self.arrivals_s[1:], strict=False)]


async def complete(port: int, prompt_ids: Sequence[int], num_output: int, extras: Mapping[str, Any]) -> Answer:
    """Ask a server on this machine for exactly `num_output` tokens, greedily.

    Args:
        extras: further fields of the body, such as the server's name for ignoring the end token.

    Raises:
        AnswerError: another status than 200, or another number of tokens.
    """
    body = {
        "prompt": list(prompt_ids),
        "max_tokens": num_output,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
        **extras,
    }
    answer = Answer(time.perf_counter())
    async for data in _events(port, json.dumps(body).encode()):
        _take(answer, json.loads(data))
    if answer.num_output_tokens != num_output or not answer.arrivals_s:
        raise AnswerError(f"{num_output} tokens were asked for and {answer.num_output_tokens} came")
    return answer


def _take(answer: Answer, event: Mapping[str, Any]) -> None:
    """Book one event of the stream."""
    if "error" in event:
        raise AnswerError(str(event["error"]))
    for choice in event.get("choices") or ():
        token_ids = (
            choice.get("token_ids") or event.get("__verbose", {}).get("tokens") or ()
        )  # the latter: llama-server
        answer.token_ids.extend(token_ids)
        if choice.get("text") or token_ids:
            answer.arrivals_s.append(time.perf_counter())
    if usage := event.get("usage"):
        answer.num_prompt_tokens = usage["prompt_tokens"]
        answer.num_output_tokens = usage["completion_tokens"]
        answer.num_cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


async def _events(port: int, body: bytes) -> AsyncIterator[bytes]:
    """Data of each server-sent event, up to ``[DONE]``."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    try:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        status = await reader.readline()
        headers = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b" 200 " not in status:
            raise AnswerError(f"{status.decode().strip()}: {(await reader.read(2000)).decode(errors='replace')}")
        if b"transfer-encoding: chunked" not in headers:
            raise AnswerError("the answer isn't streamed")
        rest = b""
        while size := int((await reader.readline()).split(b";")[0], 16):
            rest += await reader.readexactly(size)
            await reader.readexactly(2)
            *lines, rest = rest.split(b"\n")
            for line in lines:
                if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
                    yield line.removeprefix(b"data: ")
    finally:
        writer.close()
