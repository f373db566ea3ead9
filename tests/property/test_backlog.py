"""The estimate of the wait, against what really happens on the scripted model, in virtual time."""

import random
from collections.abc import Sequence
from statistics import median

import pytest
from scheduler_loop import Loop

from freehold.backends.base import BackendOptions
from freehold.backends.script import Scripts
from freehold.protocol import Event, Finish, Generate, RequestId, Sampling, ServiceClass, Tokens
from freehold.sched.backlog import Backlog, Throughput
from freehold.sched.policy import UrgentFirst

STEP_S = 0.01
TOKEN_S = 0.0004


class Site:
    """A scheduler whose steps take time, and a door that sees requests and events alone.

    Attributes:
        forecasts: by request, what was foretold when it came.
        started_s, arrived_s: by request.
    """

    def __init__(self, *, num_rows: int, budget: int, num_blocks: int) -> None:
        options = BackendOptions(num_blocks, 16, num_rows, budget)
        scripts = Scripts(lambda prompt_ids: prompt_ids)
        self.loop = Loop(options, scripts, take=self._take, checks=False)
        self.backlog = Backlog(
            num_rows=num_rows, kv_tokens=num_blocks * 16, policy=UrgentFirst(), clock=lambda: self.loop.now_s
        )
        self.forecasts: dict[str, float | None] = {}
        self.arrived_s: dict[str, float] = {}
        self.started_s: dict[str, float] = {}

    def ask(self, source: random.Random, num_prompt: int, num_output: int, service: ServiceClass) -> None:
        name = str(len(self.arrived_s))
        generate = Generate(
            request_id=RequestId(name),
            prompt_ids=tuple(source.randrange(999) for _ in range(num_prompt)),
            sampling=Sampling(max_tokens=num_output),
            service=service,
        )
        self.forecasts[name] = self.backlog.wait_s(generate)
        self.arrived_s[name] = self.loop.now_s
        self.backlog.enter(generate)
        self.loop.add(generate)

    def step(self) -> None:
        before = self.loop.num_computed
        self.loop.step()
        self.loop.now_s += STEP_S + TOKEN_S * (self.loop.num_computed - before)
        for request in self.loop.scheduler.running:
            self.started_s.setdefault(str(request.generate.request_id), self.loop.now_s)

    def _take(self, events: Sequence[Event]) -> None:
        for event in events:
            self.backlog.take(event)

    def ratios(self, names: Sequence[str], least_s: float) -> list[float]:
        """Foretold by real waits, of those that waited for a while."""
        found = []
        for name in names:
            wait_s = self.started_s[name] - self.arrived_s[name]
            forecast = self.forecasts[name]
            if wait_s > least_s and forecast is not None:
                found.append(forecast / wait_s)
        return found


@pytest.mark.parametrize(
    ("num_rows", "num_blocks", "sizes"),
    [
        (8, 2000, ((20, 60), (10, 40))),  # rows are what is short
        (32, 120, ((30, 200), (20, 60))),  # blocks are
        (4, 2000, ((300, 700), (1, 10))),  # prompts are all the work
        (1, 2000, ((20, 20), (20, 20))),
    ],
)
def test_under_steady_load_the_estimate_is_within_a_factor_of_two(num_rows: int, num_blocks: int, sizes) -> None:
    """A queue of about 40, into which one comes whenever one has ended."""
    source = random.Random(3)
    site = Site(num_rows=num_rows, budget=128, num_blocks=num_blocks)
    (least_prompt, most_prompt), (least_output, most_output) = sizes
    while len(site.arrived_s) < 400:
        while len(site.backlog) < num_rows + 40:
            prompt, output = source.randint(least_prompt, most_prompt), source.randint(least_output, most_output)
            site.ask(source, prompt, output, "interactive")
        site.step()
    while site.loop.scheduler.has_work:
        site.step()
    ratios = site.ratios([str(i) for i in range(150, 400)], least_s=0.5)
    assert len(ratios) > 150
    good = sum(0.5 <= ratio <= 2 for ratio in ratios) / len(ratios)
    assert good > 0.95, sorted(ratios)[:: len(ratios) // 10]
    assert 0.7 < median(ratios) < 1.5
    assert len(site.backlog) == 0
    assert site.backlog.num_waiting_tokens == 0


def test_only_what_comes_before_counts() -> None:
    """An interactive request passes a queue of batch requests; a batch request waits for all."""
    source = random.Random(3)
    site = Site(num_rows=4, budget=128, num_blocks=2000)
    while len(site.arrived_s) < 200:
        while len(site.backlog) < 44:
            site.ask(source, 30, 20, "batch")
        site.step()
    waits: dict[ServiceClass, float] = {}
    for service in ("interactive", "batch"):
        generate = Generate(request_id=RequestId("x"), prompt_ids=(1,), sampling=Sampling(), service=service)
        waits[service] = site.backlog.wait_s(generate) or 0.0
    assert waits["interactive"] < waits["batch"] / 10


def test_nothing_is_foretold_before_anything_was_measured() -> None:
    site = Site(num_rows=4, budget=128, num_blocks=2000)
    site.ask(random.Random(3), 30, 20, "interactive")
    assert site.forecasts["0"] is None


def test_idle_time_is_no_work() -> None:
    now_s = 0.0
    throughput = Throughput(lambda: now_s)
    for _ in range(100):
        now_s += 0.1
        throughput.note(50, was_busy=True)
    assert throughput.per_s == pytest.approx(500, rel=0.02)
    now_s += 3600.0
    throughput.note(0, was_busy=False)
    assert throughput.per_s == pytest.approx(500, rel=0.02)
    for _ in range(1000):
        now_s += 0.1
        throughput.note(5, was_busy=True)
    assert throughput.per_s == pytest.approx(50, rel=0.1), "what was long ago is forgotten"


def test_a_family_counts_its_prompt_once() -> None:
    backlog = Backlog(num_rows=2, kv_tokens=1000, policy=UrgentFirst(), clock=lambda: 0.0)
    for i in range(3):
        backlog.enter(
            Generate(request_id=RequestId(str(i)), prompt_ids=(1,) * 50, sampling=Sampling(), family="family")
        )
    assert backlog.num_waiting_tokens == 52
    backlog.take(Tokens(request_id=RequestId("0"), token_ids=(5,)))
    assert backlog.num_waiting_tokens == 2
    backlog.forget(RequestId("1"))
    for i in (0, 2):
        backlog.take(
            Finish(request_id=RequestId(str(i)), reason="cancelled", num_prompt_tokens=50, num_output_tokens=1)
        )
    assert (len(backlog), backlog.num_waiting_tokens, backlog._families) == (0, 0, {})
