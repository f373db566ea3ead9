"""From launch to the first token of a served model, and the memory that waits between requests.

    python benchmarks/launch.py [--model q4_1] [--llama-server BINARY] [--rounds 5]

Each round starts a server on a free port, asks for one streamed token until it comes, waits a second, reads the
resident memory of the server's processes (pages they share count for each), and stops it with Ctrl-C. The servers take
turns; one round before all others brings files and byte code into memory.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

from http_load import environment
from http_servers import Launch, freehold, llama_server, running
from model_files import model_file
from pairs import Spread


def launch_once(launch: Launch) -> tuple[float, int]:
    """Seconds from launch to the first token, and resident bytes a second later."""
    with running(launch) as server:
        time.sleep(1)
        return server.first_token_s, server.memory_bytes()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="q4_1", help="as `model_files` describes")
    parser.add_argument("--llama-server", type=Path, metavar="BINARY")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    model = model_file(arguments.model, None)
    launches = [freehold(model, arguments.threads)]
    if arguments.llama_server:
        launches.append(llama_server(arguments.llama_server, model, arguments.threads, slots=8, slot_tokens=4096))
    for launch in launches:
        launch_once(launch)
    rounds = [{launch.name: launch_once(launch) for launch in launches} for _ in range(arguments.rounds)]
    results: list[dict[str, Any]] = []
    for launch in launches:
        seconds = [one[launch.name][0] for one in rounds]
        idle_bytes = max(one[launch.name][1] for one in rounds)
        results.append({"server": launch.name, **environment(), "first_token_s": seconds, "idle_bytes": idle_bytes})
        spread = Spread.of(seconds)
        times = f"{spread.lowest:.2f} to {spread.highest:.2f} s, median {spread.median:.2f} s"
        print(f"{launch.name:12} launch to first token: {times}; {idle_bytes / (1 << 20):.0f} MiB resident when idle")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
