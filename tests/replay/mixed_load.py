"""Mixed traffic for a server, over HTTP: all that a recording must be able to repeat.

    python tests/replay/mixed_load.py http://127.0.0.1:8000 --seed 1 --seconds 180

prints how many requests of each kind were made and how they ended. The same seed makes the same requests; which of
them meet in a step, preempt each other or are cut short is up to the machine.
"""

import argparse
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from typing import Any

import httpx

TIMEOUT_S = 120.0
WORDS = ("river", "mountain", "copper", "lantern", "harbour", "violet", "engine", "winter", "paper", "garden", "signal")
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer"}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 10}, "size": {"enum": ["small", "large"]}},
    "required": ["name", "size"],
    "additionalProperties": False,
}

Body = dict[str, Any]


def sentence(source: random.Random, num_words: int) -> str:
    return " ".join(source.choice(WORDS) for _ in range(num_words))


def chat(source: random.Random, num_words: int = 12, **fields: Any) -> Body:
    """A chat that is sampled with a seed, or greedily."""
    messages = [{"role": "user", "content": f"Tell me about {sentence(source, num_words)}."}]
    sampling = source.choice([{"temperature": 0}, {"seed": source.randrange(1 << 50)}, {}])
    return {"messages": messages, "max_tokens": source.randint(8, 40), **sampling, **fields}


def session(source: random.Random, **fields: Any) -> Body:
    """One of a few long conversations that all begin alike, some turns into it."""
    shared = random.Random(source.randrange(3))
    messages = [{"role": "system", "content": sentence(shared, 60)}]
    for _ in range(source.randint(1, 3)):
        messages.append({"role": "user", "content": sentence(shared, 20)})
        messages.append({"role": "assistant", "content": sentence(shared, 10)})
    messages.append({"role": "user", "content": sentence(source, 4)})
    return {**chat(source), "messages": messages, **fields}


KINDS: dict[str, Callable[[random.Random], Body]] = {
    "chat": chat,
    "session": session,
    "salted session": lambda source: session(source, cache_salt=source.choice(WORDS)),
    "choices": lambda source: chat(source, n=source.randint(2, 4), temperature=1, seed=source.randrange(1 << 50)),
    "stop strings": lambda source: chat(source, stop=[source.choice("aeiou"), "\n\n"]),
    "log probabilities": lambda source: chat(source, logprobs=True, top_logprobs=source.randint(0, 5)),
    "scored prompt": lambda source: chat(source, prompt_logprobs=2),
    "penalties": lambda source: chat(
        source, presence_penalty=0.5, frequency_penalty=0.7, repetition_penalty=1.2, logit_bias={"30": -5}
    ),
    "filters": lambda source: chat(source, temperature=0.9, top_p=0.8, top_k=30, min_p=0.02),
    "tools": lambda source: chat(source, tools=[WEATHER], tool_choice="required", max_tokens=60),
    "schema": lambda source: chat(
        source,
        response_format={"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA, "strict": True}},
    ),
    "regex": lambda source: chat(source, structured_outputs={"regex": "[A-Z]{3}-[0-9]{2,5}"}),
    "long answer": lambda source: chat(source, max_tokens=150, ignore_eos=True),
    "batch class": lambda source: chat(source, 60, service_tier="batch", max_tokens=60),
    "urgent": lambda source: chat(source, 4, priority=-5, max_tokens=8),
    "left": lambda source: session(source, max_tokens=80, stream=True),
}
"""By name; clients of those that are ``left`` leave after some tokens."""


def bodies(seed: int) -> Iterator[tuple[str, Body, int | None]]:
    """Kind, body, and after how many events the client leaves. Without end; the same for the same seed."""
    for number in count():
        source = random.Random(f"{seed} {number}")
        kind = source.choice(list(KINDS))
        body = KINDS[kind](source)
        body.setdefault("stream", source.random() < 0.5)
        yield kind, body, source.randint(1, 20) if kind == "left" else None


class MixedLoad:
    """Clients that each ask one thing after the other.

    Attributes:
        ends: requests by kind and status, or ``left``.
    """

    def __init__(self, url: str, seed: int, num_clients: int = 16) -> None:
        self.ends: Counter[tuple[str, str]] = Counter()
        self._client = httpx.Client(
            base_url=url, timeout=TIMEOUT_S, limits=httpx.Limits(max_connections=num_clients + 2)
        )
        self._num_clients = num_clients
        self._bodies = bodies(seed)
        self._lock = threading.Lock()

    def run(self, *, num_requests: int | None = None, seconds: float = float("inf")) -> None:
        """Ask so many times, or for so long."""
        end_s = time.monotonic() + seconds
        source = islice(self._bodies, num_requests)

        def work() -> None:
            while time.monotonic() < end_s:
                with self._lock:
                    following = next(source, None)
                if following is None:
                    return
                self._ask(*following)

        with ThreadPoolExecutor(self._num_clients) as pool:
            for task in [pool.submit(work) for _ in range(self._num_clients)]:
                task.result()

    def batch(self, num_lines: int, seed: int) -> None:
        """Run a batch of chats and wait for its end."""
        lines = [
            {
                "custom_id": f"{number}", "method": "POST", "url": "/v1/chat/completions",
                "body": chat(random.Random(f"{seed} line {number}")),
            }
            for number in range(num_lines)
        ]  # fmt: skip
        text = "\n".join(map(json.dumps, lines))
        uploaded = self._client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", text)}).json()
        asked = {
            "input_file_id": uploaded["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h",
        }  # fmt: skip
        batch = self._client.post("/v1/batches", json=asked).json()
        while batch["status"] not in {"completed", "failed", "expired", "cancelled"}:
            time.sleep(0.2)
            batch = self._client.get(f"/v1/batches/{batch['id']}").json()
        self.ends["batch line", batch["status"]] += num_lines

    def close(self) -> None:
        self._client.close()

    def _ask(self, kind: str, body: Body, leaves_after: int | None) -> None:
        end = "left"
        try:
            with self._client.stream("POST", "/v1/chat/completions", json=body) as response:
                end = str(response.status_code)
                for number, _ in enumerate(response.iter_lines()):
                    if number == leaves_after:
                        end = "left"
                        break
        except httpx.TransportError as error:
            end = type(error).__name__
        with self._lock:
            self.ends[kind, end] += 1
        if end == "503":
            time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--batch", type=int, default=0, help="lines of a batch that runs beside")
    arguments = parser.parse_args()
    load = MixedLoad(arguments.url, arguments.seed, arguments.clients)
    beside = threading.Thread(target=load.batch, args=(arguments.batch, arguments.seed), daemon=True)
    if arguments.batch:
        beside.start()
    load.run(seconds=arguments.seconds)
    if arguments.batch:
        beside.join()
    load.close()
    for (kind, end), number in sorted(load.ends.items()):
        print(f"{number:6}  {kind}: {end}")


if __name__ == "__main__":
    main()
