"""A real Prometheus scrapes a server under load: every query of the dashboard and every alert is answered."""

import json
import math
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests import processes
from tests.server.running import TIMEOUT_S, Server, Start
from tests.server.test_lifecycle import wait_until

from freehold.backends.script import NotFinite, Pause

ROOT = Path(__file__).parents[2]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy/grafana/freehold.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
VARIABLES = {"$__rate_interval": "1m", "$job": "freehold", "$model": "test"}


def program(name: str) -> Path:
    """Installed, or where `.ci/unpack` puts it."""
    found = shutil.which(name) or shutil.which(name, path=str(ROOT / "build/programs/prometheus/usr/bin"))
    if found is None:
        pytest.skip("Prometheus can't be had here (Debian, Ubuntu: .ci/unpack prometheus prometheus)")
    return Path(found)


class Prometheus:
    """One that scrapes a server four times a second, by the configuration that is offered to users."""

    def __init__(self, folder: Path, server: Server) -> None:
        config = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
        for theirs, ours in (
            ("scrape_interval: 5s", "scrape_interval: 250ms"),
            ("evaluation_interval: 15s", "evaluation_interval: 250ms"),
            ("127.0.0.1:8000", f"127.0.0.1:{server.port}"),
        ):
            assert config.count(theirs) == 1
            config = config.replace(theirs, ours)
        (folder / "prometheus.yml").write_text(config)
        shutil.copy(ROOT / "deploy/prometheus/alerts.yml", folder)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=TIMEOUT_S)
        self.log = folder / "log"
        with self.log.open("w") as log:
            self.process = processes.start(
                [
                    program("prometheus"),
                    f"--config.file={folder}/prometheus.yml",
                    f"--storage.tsdb.path={folder}/data",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stderr=log,
            )

    def stop(self) -> None:
        self.http.close()
        self.process.terminate()
        self.process.wait(TIMEOUT_S)

    def get(self, path: str, **params: str) -> Any:
        answer = self.http.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def values(self, query: str) -> list[float]:
        """What a query gives now, of all series."""
        return [float(series["value"][1]) for series in self.get("/query", query=query)["result"]]

    def rules(self) -> dict[str, Any]:
        """Alerts, by name."""
        (group,) = self.get("/rules")["groups"]
        return {rule["name"]: rule for rule in group["rules"]}

    def answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            is_ready = self.http.get("/query", params={"query": "up"}).status_code == 200
        except httpx.TransportError:
            return False
        return is_ready and self.values("up") == [1.0]


@pytest.fixture
def busy(start: Start) -> Server:
    return start(engine={"max_num_seqs": 3, "max_num_queued_reqs": 12, "kv_cache_bytes": 1 << 17, "max_model_len": 128})


@pytest.fixture
def prometheus(tmp_path: Path, busy: Server) -> Iterator[Prometheus]:
    running = Prometheus(tmp_path, busy)
    try:
        wait_until(running.answers)
        yield running
    finally:
        running.stop()


def load(server: Server) -> None:
    """Some of everything."""
    server.says("one two three four five six", Pause(0.002), " seven eight nine")
    with ThreadPoolExecutor(24) as pool:
        for number in range(24):
            pool.submit(server.chat, max_tokens=1 + number)
        pool.submit(server.chat, temperature="hot")
    server.says("a b c", NotFinite(), " d")
    server.chat()


@pytest.mark.slow  # a Prometheus takes five seconds until it scrapes for the first time
def test_dashboard_and_alerts_are_answered(prometheus: Prometheus, busy: Server) -> None:
    timings = busy.service.counts.timings
    for _ in range(2):
        load(busy)
        wait_until(lambda: prometheus.values("vllm:generation_tokens_total") == [timings.num_tokens])
        time.sleep(0.6)  # so that whatever the first round has brought into being is seen before the second

    assert len(PANELS) >= 25
    for panel in PANELS:
        for target in panel["targets"]:
            query = with_values(target["expr"])
            found = prometheus.values(query)
            assert found, f"{panel['title']}: {query} gives nothing"
            assert all(map(math.isfinite, found)), f"{panel['title']}: {query} gives {found}"
    check_variables(prometheus)
    for busy_query in (
        "rate(vllm:generation_tokens_total[1m])",
        'increase(freehold:requests_total{outcome="failed"}[1m])',
        'sum(rate(freehold:step_seconds_sum{part!="idle"}[1m]))',
    ):
        assert max(prometheus.values(busy_query)) > 0, busy_query

    wait_until(lambda: all(rule["health"] == "ok" for rule in prometheus.rules().values()))
    assert len(prometheus.rules()) >= 8
    assert prometheus.rules()["FreeholdDown"]["state"] == "inactive"
    busy.send_signal()
    busy.join()
    wait_until(lambda: prometheus.rules()["FreeholdDown"]["state"] == "pending")


def with_values(query: str) -> str:
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    assert "$" not in query
    return query


def check_variables(prometheus: Prometheus) -> None:
    """Each of the dashboard's has the one value that it should."""
    _source, *variables = DASHBOARD["templating"]["list"]
    assert [variable["name"] for variable in variables] == ["job", "model"]
    for variable in variables:
        inner, label = variable["definition"].removeprefix("label_values(").removesuffix(")").split(", ")
        found = prometheus.get(f"/label/{label}/values", **{"match[]": with_values(inner)})
        assert found == [VARIABLES[f"${variable['name']}"]]


def test_rules_and_configuration_are_sound() -> None:
    for kind, name in (("rules", "alerts.yml"), ("config", "prometheus.yml")):
        command = [program("promtool"), "check", kind, str(ROOT / "deploy/prometheus" / name)]
        checked = subprocess.run(command, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr + checked.stdout


def test_panels_are_told_apart_and_lie_beside_each_other() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
