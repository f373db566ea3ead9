"""What traces cost: the same server with and without them, in turns, under 64 clients.

    python benchmarks/tracing_cost.py [--concurrency 64] [--rounds 5]                 # a model that takes no time
    python benchmarks/tracing_cost.py --model q4_0 [--input 64] [--output 32]         # a real one

Both servers run all the time and get the load in turns. Every request is traced; another process takes the spans and
throws them away. Without a model it prints the server's processor time for a request, as `server_overhead.py` does;
with one, tokens a second and times, as `http_load.py` does. Figures are medians over the rounds.
"""

import argparse
import asyncio
import contextlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from http_load import Level, prompts_of, vocab_size_of
from http_load import run_level as run_real
from http_servers import Launch, Server, freehold, running
from model_files import model_file
from server_overhead import CONTEXT, KINDS, tiny_model
from server_overhead import run_level as run_tiny

SINK = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
print(server.server_address[1], flush=True)
server.serve_forever()
"""

Figures = dict[str, float]


@contextlib.contextmanager
def sink() -> Iterator[str]:
    """Where spans go."""
    process = subprocess.Popen([sys.executable, "-c", SINK], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


def compare(plain: Launch, rounds: int, measure: Callable[[Server, int], Figures]) -> None:
    """Measure both servers in turns, and print medians: of each, and of what traces changed in each round."""
    with sink() as url:
        traced = replace(plain, name="traced", command=(*plain.command[:-1], "--otlp-traces-endpoint", url, "--port"))
        with running(replace(plain, name="plain")) as without, running(traced) as with_traces:
            pairs = []
            for number in range(rounds + 1):
                both = {server.name: measure(server, number) for server in _in_turn([without, with_traces], number)}
                if number:  # the first is for warming up
                    pairs.append((both["plain"], both["traced"]))
    for name in pairs[0][0]:
        off, on = (statistics.median(pair[side][name] for pair in pairs) for side in (0, 1))
        shares = sorted(pair[1][name] / pair[0][name] - 1 for pair in pairs)
        print(f"{name:22} plain {off:9.4g}  traced {on:9.4g}  by pair {statistics.median(shares):+.1%}, "
              f"from {shares[0]:+.1%} to {shares[-1]:+.1%}")  # fmt: skip


def _in_turn(servers: Sequence[Server], number: int) -> Sequence[Server]:
    """First the one, then the other, and the other way round next time."""
    return servers if number % 2 else servers[::-1]


def tiny(options: argparse.Namespace) -> None:
    """A model that takes no time: what is left is the server."""
    room = ("--max-num-seqs", str(options.concurrency), "--max-model-len", str(CONTEXT))

    def measure(server: Server, _number: int) -> Figures:
        found = {}
        for kind in KINDS:
            figures = asyncio.run(run_tiny(server, kind, options.concurrency, options.seconds))
            found[f"{kind.name} a second"] = figures["per_s"]
            found[f"{kind.name} CPU us"] = figures["cpu_us"] * kind.num_tokens
        return found

    with tempfile.TemporaryDirectory() as folder:
        compare(freehold(tiny_model(Path(folder)), 1, *room), options.rounds, measure)


def real(options: argparse.Namespace) -> None:
    """Tokens a second of a real model."""
    path = model_file(options.model, None)
    vocab_size = vocab_size_of(path)
    level = Level(options.concurrency, options.concurrency, 0.0, options.input, options.output)

    def measure(server: Server, number: int) -> Figures:
        prompts = prompts_of(level, vocab_size, f"{server.name} {number}")
        found = asyncio.run(run_real(server, level, prompts))
        return {name: found[name] for name in ("output_throughput", "p50_ttft_ms", "p50_itl_ms")}

    compare(freehold(path, options.threads), options.rounds, measure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement without a real model")
    parser.add_argument("--model", help="a real one, by its name in the benchmarks")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--input", type=int, default=64)
    parser.add_argument("--output", type=int, default=32)
    options = parser.parse_args()
    (real if options.model else tiny)(options)


if __name__ == "__main__":
    main()
