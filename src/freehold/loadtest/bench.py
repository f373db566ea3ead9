"""A run from its options: finds out what the server is, makes the workload, measures."""

from dataclasses import dataclass, replace
from pathlib import Path

from freehold.loadtest.client.http_client import HttpClient
from freehold.loadtest.client.target import read_target
from freehold.loadtest.options import BenchOptions
from freehold.loadtest.results import RunResult
from freehold.loadtest.run import Tools, Watcher, run
from freehold.loadtest.server_facts import ask_server
from freehold.loadtest.store import RunStore
from freehold.loadtest.workloads.catalog import open_workload
from freehold.loadtest.workloads.served import Served, asking

_ASKING_S = 30.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a run needs beside its options, and what isn't saved with them.

    Attributes:
        home: folder of the model store, for tokenizers.
        key: the server's, if it needs one.
        headers: further ones, as ``Name=value``.
    """

    home: Path
    key: str = ""
    headers: tuple[str, ...] = ()


async def run_bench(options: BenchOptions, store: RunStore, surroundings: Surroundings, watcher: Watcher) -> RunResult:
    """Measure what the store doesn't have yet. Cancelling it ends it early with what there is.

    Raises:
        ConfigError: the options, or files that they name, are of no use.
        ResourceError: no server answers as it should.
    """
    target = read_target(options.base_url, surroundings.key, surroundings.headers, is_insecure=options.is_insecure)
    tokenizer = None
    if options.tokenizer is not None:
        from freehold.loadtest.tokenizing import open_tokenizer

        tokenizer = open_tokenizer(options.tokenizer, surroundings.home)
    http = HttpClient(target, min(options.timeout_s, _ASKING_S))
    try:
        facts = await ask_server(http, options.model)
    finally:
        await http.close()
    is_chat = options.backend == "openai-chat"
    with asking(target, facts.model, "chat" if is_chat else "ids") as asked:
        context = asked.max_model_len or facts.max_model_len
        served = replace(asked, max_model_len=context, vocab_size=facts.vocab_size)
        if tokenizer is not None:
            served = Served("chat" if is_chat else "text", context, tokenizer.encode)
        workload = open_workload(options.dataset, served)
        tools = Tools(target, workload, store, watcher, tokenizer.count if tokenizer else None)
        return await run(options, facts, tools)
