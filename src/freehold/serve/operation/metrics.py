"""``GET /metrics``: what the server counts, in Prometheus' text format. Names are vLLM's where it has them.

Labels have fixed sets of values: the served model, outcomes, codes, kinds of tokens, and ids of keys that exist.
"""

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from freehold.access.usage import OUTCOMES
from freehold.serve.operation.counts import REJECTIONS
from freehold.serve.service import Service
from freehold.text.stream import AnswerEnd

_MODEL = ("model_name", "engine")
_FINISHED: tuple[AnswerEnd, ...] = ("stop", "length", "tool_calls")
_TOKENS = ("prompt", "cached", "output", "reasoning")


def gather(service: Service) -> list[Metric]:
    """The numbers as they are now. In the event loop's thread, which changes them."""
    return list(_Reading(service).families())


def exposition(gathered: Sequence[Metric], accept: str) -> tuple[bytes, str]:
    """Metrics and the process's own as text, and its media type. In any thread: with many keys it takes a moment.

    Args:
        accept: the request's header.
    """
    registry = CollectorRegistry()
    registry.register(_Gathered(gathered))
    ProcessCollector(registry=registry)
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


class _Gathered(Collector):
    """What was gathered, as the library wants it."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Sequence[Metric]:
        return self._families


class _Reading:
    """Reads the numbers of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._model = (service.config.served_model_name, "0")

    def families(self) -> Iterator[Metric]:
        """All metrics."""
        yield from self._load()
        yield from self._tokens()
        yield from self._requests()
        yield from self._keys()

    def _load(self) -> Iterator[Metric]:
        engine, info = self._service.engine.engine, self._service.info
        num_live = engine.num_live
        num_running = min(num_live, info.max_num_seqs)
        yield self._gauge("vllm:num_requests_running", "Answers that the engine may work on now.", num_running)
        yield self._gauge("vllm:num_requests_waiting", "Answers beyond --max-num-seqs.", num_live - num_running)
        yield self._gauge(
            "freehold:num_answers_inside", "Answers let in, those included whose prompt is being prepared.",
            self._service.load.num_answers,
        )  # fmt: skip
        ready = self._service.not_ready() is None
        yield self._gauge("freehold:ready", "1 if answers can be generated now, as /readyz says.", ready)
        shape = GaugeMetricFamily(
            "vllm:cache_config_info", "The KV cache.", labels=(*_MODEL, "block_size", "num_gpu_blocks")
        )
        shape.add_metric((*self._model, str(info.block_size), str(info.num_blocks)), 1)
        yield shape

    def _tokens(self) -> Iterator[Metric]:
        total = self._service.counts.total()
        for name, text, value in (
            ("vllm:prompt_tokens", "Tokens of prompts.", total.prompt_tokens),
            ("vllm:prompt_tokens_cached", "Tokens of prompts whose keys and values were reused.", total.cached_tokens),
            ("vllm:generation_tokens", "Tokens of answers.", total.output_tokens),
        ):
            family = CounterMetricFamily(name, text, labels=_MODEL)
            family.add_metric(self._model, value)
            yield family

    def _requests(self) -> Iterator[Metric]:
        counts = self._service.counts
        finished = CounterMetricFamily(
            "vllm:request_success", "Answers that ended by themselves.", labels=(*_MODEL, "finished_reason")
        )
        for reason in _FINISHED:
            finished.add_metric((*self._model, reason), counts.finished[reason])
        yield finished
        rejected = CounterMetricFamily(
            "vllm:admission_rejections", "Requests turned away before anything was begun.", labels=(*_MODEL, "reason")
        )
        for code in sorted(REJECTIONS):
            rejected.add_metric((*self._model, code), counts.rejected[code])
        yield rejected
        outcomes = CounterMetricFamily(
            "freehold:requests", "Requests to generate, by how they ended.", labels=(*_MODEL, "outcome")
        )
        for outcome in OUTCOMES:
            number = sum(used.requests for (_, ended), used in counts.used.items() if ended == outcome)
            outcomes.add_metric((*self._model, outcome), number)
        yield outcomes

    def _keys(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("freehold:key_requests", "Requests to generate.", labels=("key", "outcome"))
        tokens = CounterMetricFamily("freehold:key_tokens", "Tokens; cached ones are the prompt's, reasoning the "
                                     "output's.", labels=("key", "kind"))  # fmt: skip
        sums: dict[str, dict[str, int]] = {}
        for (key_id, outcome), used in self._service.counts.used.items():
            requests.add_metric((key_id, outcome), used.requests)
            kinds = sums.setdefault(key_id, dict.fromkeys(_TOKENS, 0))
            for kind in _TOKENS:
                kinds[kind] += getattr(used, f"{kind}_tokens")
        for key, kinds in sums.items():
            for kind, number in kinds.items():
                tokens.add_metric((key, kind), number)
        yield requests
        yield tokens

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, text, labels=_MODEL)
        family.add_metric(self._model, value)
        return family
