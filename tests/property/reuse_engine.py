"""The scheduler's loop with requests by name, for tests that count what is computed."""

import random
from collections.abc import Iterable, Sequence

from scheduler_loop import Loop

from freehold.backends.base import BackendOptions
from freehold.backends.script import Scripts
from freehold.protocol import Event, Finish, Generate, Pin, RequestId, Sampling, ServiceClass, Tokens
from freehold.sched.check import check_idle
from freehold.sched.request import Status

BLOCK = 32


class Engine:
    """Requests and their ends by name.

    Attributes:
        ids: by request, its prompt and what was sampled.
    """

    def __init__(
        self, *, num_blocks: int = 512, max_rows: int = 64, budget: int = 512, prefix_caching: bool = True
    ) -> None:
        self.scripts = Scripts(lambda prompt_ids: [sum(prompt_ids) * (i + 7) % 900 for i in range(50)])
        options = BackendOptions(num_blocks, BLOCK, max_rows, budget)
        self.loop = Loop(options, self.scripts, take=self._take, prefix_caching=prefix_caching)
        self.scheduler = self.loop.scheduler
        self.ids: dict[str, list[int]] = {}
        self.digests: dict[str, list[int]] = {}
        self.finishes: dict[str, Finish] = {}

    def ask(
        self,
        name: str,
        prompt: Sequence[int],
        *,
        max_tokens: int = 8,
        namespace: str = "",
        family: str = "",
        service: ServiceClass = "interactive",
        pin: Pin | None = None,
        is_public: bool = False,
    ) -> None:
        self.ids[name], self.digests[name] = list(prompt), []
        self.loop.add(
            Generate(
                request_id=RequestId(name),
                prompt_ids=tuple(prompt),
                sampling=Sampling(max_tokens=max_tokens),
                digests=True,
                cache_namespace=namespace,
                family=family,
                service=service,
                pin=pin,
                is_public=is_public,
            )
        )

    def answer(self, name: str, prompt: Sequence[int], **settings: int | str) -> Finish:
        """Ask and wait."""
        self.ask(name, prompt, **settings)
        self.finish()
        return self.finishes[name]

    def finish(self) -> None:
        while self.scheduler.has_work:
            self.loop.step()
        check_idle(self.scheduler)

    def abort(self, name: str) -> None:
        self._take(self.scheduler.abort(RequestId(name)))

    def statuses(self) -> dict[str, Status]:
        return {str(request_id): request.status for request_id, request in self.scheduler.live.items()}

    def cached(self, name: str) -> int:
        return self.finishes[name].num_cached_tokens

    def _take(self, events: Iterable[Event]) -> None:
        for event in events:
            name = str(event.request_id)
            if isinstance(event, Tokens):
                self.ids[name] += event.token_ids
                self.digests[name] += event.digests
            else:
                self.finishes[name] = event


def some_ids(num: int, seed: object) -> list[int]:
    source = random.Random(str(seed))
    return [source.randrange(999) for _ in range(num)]
