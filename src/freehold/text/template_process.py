"""The process that renders chat templates, as its owner sees it."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from freehold.errors import RequestError
from freehold.workers.process import Worker, WorkerEndedError

WORKER = "freehold.text.template_worker"


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """What one rendering may take.

    Attributes:
        cpu_s: processor seconds, kept by the kernel inside the process.
        wall_s: seconds until the process is ended from outside. Long, because a loaded machine is no one's fault.
        memory_bytes: address space beyond what the process has after starting.
        steps: loop rounds and calls.
        output_chars: length of the text.
    """

    cpu_s: float = 0.5
    wall_s: float = 10.0
    memory_bytes: int = 128 << 20
    steps: int = 1_000_000
    output_chars: int = 16 << 20


class TemplateError(RequestError):
    """The template can't render these messages. `code` tells why: ``template_refused`` (it says so itself),
    ``template_failed`` (it hit an error, or tried what the sandbox forbids), ``template_budget`` (time, steps, memory
    or output)."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message, param="messages", code=code)


class TemplateProcess:
    """One worker for one model's templates, started when first needed and again after it died. Thread-safe; renderings
    take turns."""

    def __init__(self, sources: Mapping[str, str], limits: TemplateLimits) -> None:
        self._limits = limits
        frame = msgspec.json.encode({"sources": dict(sources), "limits": asdict(limits)})
        self._worker = Worker(WORKER, lambda: frame, wall_s=limits.wall_s, task="renders chat templates")
        self._lock = threading.Lock()
        self._facts: dict[str, dict[str, Any]] | None = None

    def start(self) -> None:
        """Start the worker if it isn't there, without waiting for it.

        Raises:
            ResourceError: no process can be started.
        """
        with self._lock:
            self._worker.start()

    def facts(self, template: str) -> Mapping[str, Any]:
        """``literals`` (the text the template itself may write) and ``iterates_content``.

        Raises:
            TemplateError: the templates don't compile.
        """
        with self._lock:
            if self._facts is None:
                facts: dict[str, dict[str, Any]] = self._reply(self._worker.open)["facts"]
                self._facts = facts
            return self._facts[template]

    def render(self, template: str, variables: Mapping[str, Any], now: tuple[int, ...]) -> str:
        """Render one of the templates. Blocks, at worst for the limits' `wall_s`.

        Arguments:
            now: year, month, day, hour, minute, second, microsecond.

        Raises:
            TemplateError: see there.
            ResourceError: the worker can't be started.
        """
        request = msgspec.json.encode({"template": template, "variables": variables, "now": now})
        with self._lock:
            text: str = self._reply(lambda: self._worker.ask(request))["text"]
            return text

    def close(self) -> None:
        """End the worker. A later rendering starts another."""
        with self._lock:
            self._worker.close()

    def _reply(self, exchange: Callable[[], bytes]) -> dict[str, Any]:
        try:
            reply: dict[str, Any] = msgspec.json.decode(exchange())
        except WorkerEndedError:
            raise TemplateError(
                f"the model's chat template takes more than {self._limits.cpu_s} s of processor time, or more memory "
                "than it may; use another template",
                code="template_budget",
            ) from None
        if "error" in reply:
            if self._facts is None:
                self._worker.close()
            raise TemplateError(_sentence(reply), code=f"template_{reply['error']}")
        return reply


def _sentence(reply: Mapping[str, str]) -> str:
    # What the template says itself is for the client, word for word.
    if reply["error"] == "refused":
        return reply["message"]
    return f"the model's chat template can't render these messages: {reply['message']}"
