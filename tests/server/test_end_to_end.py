"""The real model behind the real command, as a user starts it."""

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests import processes

from freehold.access import usage
from freehold.access.database import connect, path_in

TIMEOUT_S = 120.0
MAX_IDLE_BYTES = 400 << 20
MAX_LAUNCH_CPU_S = 4.0
"""Processor time from launch to first token. The wall clock depends on who else uses the machine; this doesn't."""

PROMPT: list[Any] = [{"role": "user", "content": "Name three colours."}]


class Served:
    """``freehold serve`` in a process of its own."""

    def __init__(self, model: Path, *flags: str, key: str = "none") -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.command = [sys.executable, "-m", "freehold", "serve", str(model), "--port", str(self.port), *flags]
        self.url = f"http://127.0.0.1:{self.port}"
        self.headers = {"x-api-key": key}
        started = time.monotonic()
        self.process = processes.start(self.command, stderr=subprocess.PIPE, text=True)
        self.first_token_s, self.first_token_cpu_s = self._first_token(started)
        self.client = openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=TIMEOUT_S)
        self.model = self.client.models.list().data[0].id

    def _first_token(self, started: float) -> tuple[float, float]:
        body = {"messages": PROMPT, "stream": True, "max_tokens": 4, "temperature": 0}
        while True:
            assert self.process.poll() is None, self.process.stderr and self.process.stderr.read()
            try:
                with self._stream(body) as response:
                    for line in response.iter_lines():
                        delta = json.loads(line[6:])["choices"][0]["delta"] if line.startswith("data: {") else {}
                        if delta.get("content"):
                            return time.monotonic() - started, self.cpu_s()
            except httpx.ConnectError:
                assert time.monotonic() - started < TIMEOUT_S
                time.sleep(0.02)

    def _stream(self, body: Any) -> Any:
        url = f"{self.url}/v1/chat/completions"
        return httpx.stream("POST", url, json=body, headers=self.headers, timeout=TIMEOUT_S)

    def family(self) -> list[int]:
        """Process ids: the server's, and those of the processes that it started."""
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [self.process.pid, *(int(child) for path in children for child in path.read_text().split())]

    def engine_pid(self) -> int:
        """The process that runs the engine."""
        (pid,) = self.engines()
        return pid

    def engines(self) -> list[int]:
        """All processes that run an engine."""
        command = b"freehold.engine.process"
        return [pid for pid in self.family() if command in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]

    def cpu_s(self) -> float:
        """Processor time of the whole family."""
        stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self.family()]
        return sum(int(fields[11]) + int(fields[12]) for fields in stats) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self) -> int:
        """Memory of the whole family; what several share counts for each."""
        statuses = [Path(f"/proc/{pid}/status").read_text() for pid in self.family()]
        return sum(int(line.split()[1]) * 1024 for s in statuses for line in s.splitlines() if line.startswith("VmRSS"))

    def chat(self, **fields: Any) -> Any:
        extra = {"return_token_ids": True, **fields.pop("extra_body", {})}
        return self.client.chat.completions.create(
            model=self.model, messages=fields.pop("messages", PROMPT), extra_body=extra, **fields
        )

    def stop(self, number: signal.Signals = signal.SIGINT) -> str:
        """Signal it, check that it ends well, and return its log."""
        self.process.send_signal(number)
        _, log = self.process.communicate(timeout=TIMEOUT_S)
        assert self.process.returncode == 0, log
        assert "Traceback" not in log
        return log


@pytest.fixture(scope="module")
def served(smollm2_path: Path) -> Iterator[Served]:
    served = Served(smollm2_path)
    yield served
    log = served.stop()
    assert re.search(r"serves .* at http://127.0.0.1:\d+/v1; weights .* MiB, KV cache \d+ tokens .* fit;", log)


def ids(answer: Any) -> list[list[int]]:
    return [choice.token_ids for choice in answer.choices]


def test_launch_and_idle(served: Served, record_property: Any) -> None:
    resident = served.resident_bytes()
    record_property("first_token_s", served.first_token_s)
    record_property("first_token_cpu_s", served.first_token_cpu_s)
    record_property("idle_bytes", resident)
    assert served.first_token_cpu_s < MAX_LAUNCH_CPU_S
    assert resident < MAX_IDLE_BYTES
    idle = served.cpu_s()
    time.sleep(0.5)
    assert served.cpu_s() - idle < 0.25, "an idle server is idle"


def test_it_answers(served: Served) -> None:
    answer = served.chat(temperature=0, max_tokens=40)
    assert re.search(r"red|blue|green|yellow", answer.choices[0].message.content.lower())
    parts = list(served.chat(temperature=0, max_tokens=40, stream=True))
    assert "".join(part.choices[0].delta.content or "" for part in parts) == answer.choices[0].message.content
    text = served.client.completions.create(
        model=served.model, prompt="The capital of France is", max_tokens=8, temperature=0
    )
    assert "Paris" in text.choices[0].text


def test_whoever_reads_the_log_may_stop(smollm2_path: Path) -> None:
    """F9: a pipe that nobody reads. Logging to it used to stop the whole server once it was full."""
    served = Served(smollm2_path)
    assert served.process.stderr is not None
    capacity = fcntl.fcntl(served.process.stderr.fileno(), fcntl.F_SETPIPE_SZ, 4096)
    num_written = 0
    with httpx.Client(base_url=served.url, timeout=20) as client:
        while num_written < 3 * capacity:
            num_written += len(client.get("/v1/models", headers={"x-request-id": "r" * 64}).headers["x-request-id"])
    assert served.chat(max_tokens=4, temperature=0).usage.completion_tokens == 4
    log = served.stop()
    assert log.count("r" * 64) == num_written // 64, "all of it was kept meanwhile"


def test_choices_differ_and_repeat(served: Served) -> None:
    first = ids(served.chat(n=4, seed=7, temperature=1.0, max_tokens=12))
    assert len({tuple(choice) for choice in first}) == 4
    assert first == ids(served.chat(n=4, seed=7, temperature=1.0, max_tokens=12))
    assert first != ids(served.chat(n=4, seed=8, temperature=1.0, max_tokens=12))
    assert first[:1] == ids(served.chat(n=1, seed=7, temperature=1.0, max_tokens=12))
    unseeded = served.client.chat.completions.with_raw_response.create(
        model=served.model, messages=PROMPT, max_tokens=12, extra_body={"return_token_ids": True}
    )
    seed = int(unseeded.headers["x-seed"])
    assert ids(unseeded.parse()) == ids(served.chat(seed=seed, max_tokens=12)), "the seed that was drawn is told"


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1.0, "seed": 5}])
def test_neighbours_change_nothing(served: Served, sampling: dict[str, Any]) -> None:
    alone = ids(served.chat(max_tokens=16, **sampling))

    def neighbour(i: int) -> None:
        served.chat(messages=[{"role": "user", "content": f"Count to {i} " * (i + 1)}], max_tokens=5 + i)

    with ThreadPoolExecutor(9) as pool:
        neighbours = [pool.submit(neighbour, i) for i in range(8)]
        among = [pool.submit(served.chat, max_tokens=16, **sampling) for _ in range(2)]
        assert [ids(future.result()) for future in among] == [alone, alone]
        for future in neighbours:
            future.result()


def test_second_server_on_the_same_port(served: Served) -> None:
    done = subprocess.run(served.command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 2
    assert f"port {served.port}" in done.stderr
    assert done.stderr.count("\n") == 1


def test_one_listener_and_no_other_connection(served: Served) -> None:
    import psutil

    family = [psutil.Process(served.process.pid), *psutil.Process(served.process.pid).children(recursive=True)]
    sockets = [entry for process in family for entry in process.net_connections(kind="inet")]
    assert {entry.laddr.port for entry in sockets if entry.status == psutil.CONN_LISTEN} == {served.port}
    assert {entry.laddr.port for entry in sockets} == {served.port}


def test_a_killed_engine_comes_back_with_the_same_tokens(served: Served) -> None:  # op-12
    before, pid = ids(served.chat(temperature=1.0, seed=3, max_tokens=24)), served.engine_pid()
    fingerprint = served.client.models.retrieve(served.model).system_fingerprint  # type: ignore[attr-defined]
    with ThreadPoolExecutor(4) as pool:
        begun = threading.Barrier(5)
        streams = [pool.submit(read_to_its_end, served, begun) for _ in range(4)]
        begun.wait(TIMEOUT_S)
        killed_s = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        for stream in streams:
            data = stream.result()
            assert json.loads(data[-2])["error"]["code"] == "engine_died"
            assert data[-1] == "[DONE]"
    assert httpx.get(f"{served.url}/livez", timeout=TIMEOUT_S).status_code == 200
    while (ready := httpx.get(f"{served.url}/readyz", timeout=TIMEOUT_S)).status_code == 503:
        assert ready.headers["retry-after"] == "1"
        assert ready.json()["error"]["code"] == "engine_restarting"
        assert time.monotonic() - killed_s < TIMEOUT_S
        time.sleep(0.05)
    assert ids(served.chat(temperature=1.0, seed=3, max_tokens=24)) == before
    assert served.client.models.retrieve(served.model).system_fingerprint == fingerprint  # type: ignore[attr-defined]
    assert served.engine_pid() != pid


def read_to_its_end(served: Served, begun: threading.Barrier) -> list[str]:
    """The data of a stream that is longer than the engine lives."""
    body = {"messages": PROMPT, "stream": True, "max_tokens": 1500, "ignore_eos": True}
    data: list[str] = []
    with httpx.stream("POST", f"{served.url}/v1/chat/completions", json=body, timeout=TIMEOUT_S) as response:
        for line in response.iter_lines():
            if line.startswith("data: "):
                data.append(line.removeprefix("data: "))
                if len(data) == 3:
                    begun.wait(TIMEOUT_S)
    return data


def test_a_killed_server_leaves_nothing_behind(smollm2_path: Path) -> None:
    served = Served(smollm2_path)
    engine = served.engine_pid()
    served.process.kill()
    served.process.communicate(timeout=TIMEOUT_S)  # the engine has its end of stderr too
    state = Path(f"/proc/{engine}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.slow
def test_a_server_whose_engine_always_dies_ends_with_an_error(smollm2_path: Path) -> None:
    served = Served(smollm2_path)
    deadline = time.monotonic() + TIMEOUT_S
    while served.process.poll() is None:
        assert time.monotonic() < deadline
        with suppress(ProcessLookupError, FileNotFoundError):  # what died meanwhile
            for engine in served.engines():
                os.kill(engine, signal.SIGKILL)
        time.sleep(0.05)
    _, log = served.process.communicate(timeout=TIMEOUT_S)
    assert served.process.returncode == 1, log
    assert "freehold: the engine ended 5 times in a row" in log.splitlines()[-1]
    assert "Traceback" not in log


def test_prompts_stay_out_of_the_log(smollm2_path: Path) -> None:
    served = Served(smollm2_path, "--log-level", "debug")
    canary = "xyzzyplugh"
    served.chat(messages=[{"role": "user", "content": canary}], max_tokens=2)
    for path, body in (("/v1/chat/completions", {canary: 1}), (f"/{canary}%0d%0aforged", {})):
        httpx.post(served.url + path, json=body, headers={"x-request-id": f"{canary}\t1"}, timeout=TIMEOUT_S)
    family = served.family()
    assert len(family) > 2, "the engine and the templates have processes of their own"
    log = served.stop(signal.SIGTERM)
    assert "prompt=" in log
    assert [line for line in log.splitlines() if canary in line and f"/{canary}" not in line] == []
    assert not any(line.startswith("forged") for line in log.splitlines())
    assert not any(Path(f"/proc/{pid}").exists() for pid in family), "no orphans"


def test_keys_from_their_making_to_the_bill(smollm2_path: Path, tmp_path: Path) -> None:
    """Made and revoked by command beside a running server; what was used is on disk when it has stopped."""

    def command(*arguments: str) -> str:
        done = [sys.executable, "-m", "freehold", *arguments, "--state-dir", str(tmp_path)]
        return subprocess.run(done, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout

    boss = command("keys", "create", "boss", "--admin").strip()
    served = Served(smollm2_path, "--state-dir", str(tmp_path), "--log-format", "json", "--log-level", "info", key=boss)
    user = command("keys", "create", "user", "--tokens-per-day", "100000").strip()
    served.process.send_signal(signal.SIGHUP)
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key=user, max_retries=5, timeout=TIMEOUT_S) as client:
        deadline_s = time.monotonic() + TIMEOUT_S
        while httpx.get(f"{served.url}/v1/models", headers={"x-api-key": user}).status_code == 401:
            assert time.monotonic() < deadline_s
        answer = client.chat.completions.create(model=served.model, messages=PROMPT, max_tokens=5)
        command("keys", "revoke", "user")
        served.process.send_signal(signal.SIGHUP)
        while httpx.get(f"{served.url}/v1/models", headers={"x-api-key": user}).status_code == 200:
            assert time.monotonic() < deadline_s
        with pytest.raises(openai.AuthenticationError):
            client.chat.completions.create(model=served.model, messages=PROMPT, max_tokens=5)
    log = served.stop(signal.SIGTERM)
    lines = [json.loads(line) for line in log.splitlines()]
    assert {line["level"] for line in lines} == {"info"}
    assert [line["key"] for line in lines if line.get("output_tokens") == answer.usage.completion_tokens]
    assert boss not in log
    assert user not in log
    header, *rows = [line.split(",") for line in command("usage", "--csv").splitlines()]
    (row,) = [dict(zip(header, cells, strict=True)) for cells in rows if cells[1] == "user"]
    assert (row["completed"], row["prompt_tokens"]) == ("1", str(answer.usage.prompt_tokens))
    assert row["output_tokens"] == str(answer.usage.completion_tokens)


def test_a_killed_server_has_written_all_but_the_last_moment(smollm2_path: Path, tmp_path: Path) -> None:
    """Budgets of days and months are worked out from this."""
    served = Served(smollm2_path, "--state-dir", str(tmp_path))
    ended_s = []
    deadline_s = time.monotonic() + 2
    while time.monotonic() < deadline_s:
        served.chat(max_tokens=1)
        ended_s.append(time.monotonic())
    family = served.family()
    served.process.kill()
    killed_s = time.monotonic()
    served.process.communicate(timeout=TIMEOUT_S)
    with closing(connect(path_in(tmp_path))) as connection:
        num_written = sum(used.requests for _, used in usage.read(connection))
    # The first one was asked at start. Half a second, and what a commit takes.
    num_old = 1 + sum(moment_s < killed_s - 1.0 for moment_s in ended_s)
    assert num_old <= num_written <= 1 + len(ended_s)
    while any(Path(f"/proc/{pid}").exists() for pid in family):
        assert time.monotonic() < killed_s + TIMEOUT_S
        time.sleep(0.02)


SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.mark.parametrize(
    ("number", "delays_s"),
    [
        (signal.SIGINT, (0.02, 0.1, 0.4, 1.6)),
        (signal.SIGTERM, (0.05, 0.2, 0.8)),
        *(pytest.param(number, (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6), marks=pytest.mark.slow) for number in SIGNALS),
    ],
)
def test_signal_at_any_moment_of_the_start(
    smollm2_path: Path, number: signal.Signals, delays_s: tuple[float, ...]
) -> None:  # op-07
    # Begins where Python has started and our first lines have run, which mind the signals.
    code = "from freehold.cli import main; run = main._run_or_say;"
    code += "main._run_or_say = lambda: (print(flush=True), run()); main.main()"
    command = [sys.executable, "-c", code, "serve", str(smollm2_path), "--port", "0"]
    for delay_s in delays_s:
        process = processes.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay_s)
        process.send_signal(number)
        _, log = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, (delay_s, log)
        assert "Traceback" not in log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_while_loading(smollm2_path: Path, free_port: int, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "freehold", "serve", str(smollm2_path), "--port", str(free_port)]
    process = processes.start(command, stderr=subprocess.PIPE, text=True)
    # The port listens before the model loads.
    connected = False
    while not connected:
        assert process.poll() is None
        with socket.socket() as probe:
            connected = probe.connect_ex(("127.0.0.1", free_port)) == 0
        time.sleep(0.005)
    time.sleep(0.1)
    process.send_signal(number)
    _, log = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, log
    assert "Traceback" not in log
