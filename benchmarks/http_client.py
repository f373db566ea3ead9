"""One streamed completion over HTTP, with the time of every token: the load tester's client, for a single request."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from freehold.loadtest.client import answer as loadtest_answer
from freehold.loadtest.client.failures import FailedRequestError
from freehold.loadtest.client.http_client import HttpClient
from freehold.loadtest.client.target import read_target

TIMEOUT_S = 3600.0


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
    """Ask a server on this machine for exactly `num_output` tokens, greedily, over a connection of its own.

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
    client = HttpClient(read_target(f"http://127.0.0.1:{port}"), TIMEOUT_S)
    stream = loadtest_answer.Answer(is_stream=True, keeps_text=False)
    try:
        response = await client.post("/v1/completions", json.dumps(body).encode(), "benchmark", stream.take)
    except FailedRequestError as error:
        raise AnswerError(str(error)) from None
    finally:
        await client.close()
    counts = stream.counts
    answer = Answer(
        response.sent_s,
        stream.arrivals_s,
        stream.token_ids,
        counts.num_input or 0,
        counts.num_output or 0,
        counts.num_cached or 0,
    )
    if answer.num_output_tokens != num_output or not answer.arrivals_s:
        raise AnswerError(f"{num_output} tokens were asked for and {answer.num_output_tokens} came")
    return answer
