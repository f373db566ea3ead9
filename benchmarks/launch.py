"""From launch to the first token of a served model, and the memory that waits between requests.

    python benchmarks/launch.py [MODEL] [--rounds 5]

Each round starts `freehold serve` on a free port, asks for one streamed token until it comes, waits a second, reads the
resident memory of the server and its engine process (pages they share count for each), and stops it with Ctrl-C.
"""

import argparse
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

BODY = b'{"prompt": "Hello", "max_tokens": 1, "temperature": 0, "stream": true}'


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_token(url: str) -> None:
    """Return once the first event of a streamed answer has text."""
    request = urllib.request.Request(url, BODY, {"Content-Type": "application/json"})
    while True:
        try:
            with urllib.request.urlopen(request) as response:
                if any(b'"text":"' in line and b'"text":""' not in line for line in response):
                    return
                raise SystemExit("the stream ended without a token")
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            time.sleep(0.01)
        except urllib.error.URLError:
            time.sleep(0.01)


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and its children."""
    children = [int(c) for path in Path(f"/proc/{pid}/task").glob("*/children") for c in path.read_text().split()]
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    own = sum(int(line.split()[1]) << 10 for line in status if line.startswith("VmRSS"))
    return own + sum(resident_bytes(child) for child in children)


def launch(model: str) -> tuple[float, int]:
    """Seconds from launch to the first token, and resident bytes a second later."""
    port = free_port()
    started = time.monotonic()
    command = [sys.executable, "-m", "freehold", "serve", model, "--port", str(port), "--log-level", "error"]
    server = subprocess.Popen(command)
    wait_for_token(f"http://127.0.0.1:{port}/v1/completions")
    first_s = time.monotonic() - started
    time.sleep(1)
    num_bytes = resident_bytes(server.pid)
    server.send_signal(signal.SIGINT)
    if server.wait() != 0:
        raise SystemExit(f"the server ended with {server.returncode}")
    return first_s, num_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    launch(arguments.model)  # brings files and byte code into memory
    rounds = [launch(arguments.model) for _ in range(arguments.rounds)]
    seconds = sorted(first_s for first_s, _ in rounds)
    print(f"launch to first token: {seconds[0]:.2f} to {seconds[-1]:.2f} s, median {statistics.median(seconds):.2f} s")
    print(f"resident when idle: {max(num_bytes for _, num_bytes in rounds) / (1 << 20):.0f} MiB")


if __name__ == "__main__":
    main()
