"""What a synthetic workload would ask, as a trace in Mooncake's format: to be shared, and sent to any server."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from freehold.errors import ConfigError, shown
from freehold.loadtest.arrivals import start_times
from freehold.loadtest.options import BenchOptions
from freehold.loadtest.workloads.base import Conversation
from freehold.loadtest.workloads.catalog import open_workload
from freehold.loadtest.workloads.filler import GUESSED
from freehold.loadtest.workloads.served import Served
from freehold.loadtest.workloads.trace_files import MOONCAKE_BLOCK_LEN

ANSWER_TOKEN_S = 0.02
"""What a token of an answer is taken to last: the next turn of a conversation comes a pause after the answer's end."""

SYNTHETIC = ("random", "published", "agent", "multi_turn", "prefix_repetition")
"""Data sets that can be written: the others are files already."""


class _Line(NamedTuple):
    """A request.

    Attributes:
        blocks: hashes of its prompt's blocks, each of which depends on those before.
    """

    start_s: float
    input_len: int
    output_len: int
    blocks: tuple[bytes, ...]


def write_trace(options: BenchOptions, seed: int, path: Path) -> int:
    """Write the requests that the first point of a run would ask of a model of any context.

    Args:
        seed: of the point.

    Returns:
        how many requests it has.

    Raises:
        ConfigError: the data set is no synthetic one, no single rate is given, or the file can't be written.
    """
    lines = sorted(_lines(options, seed), key=lambda line: line.start_s)
    numbers: dict[bytes, int] = {}
    try:
        with path.open("wb") as file:
            for line in lines:
                told = {
                    "timestamp": round(line.start_s * 1000),
                    "input_length": line.input_len,
                    "output_length": line.output_len,
                    "hash_ids": [numbers.setdefault(block, len(numbers)) for block in line.blocks],
                }
                file.write(msgspec.json.encode(told) + b"\n")
    except OSError as error:
        raise ConfigError(f"can't write the trace {path}: {error.strerror}") from None
    return len(lines)


def _lines(options: BenchOptions, seed: int) -> Iterator[_Line]:
    if options.dataset.name not in SYNTHETIC:
        raise ConfigError(
            f"--write-trace can't be given with --dataset-name {shown(options.dataset.name)}: that is a file already; "
            f"it is for {', '.join(SYNTHETIC)}"
        )
    if len(options.loads) != 1 or options.loads[0].kind != "open":
        raise ConfigError("--write-trace needs one --request-rate, or a ramp: a trace says when requests come")
    (load,) = options.loads
    # Each word is a token, so that the words of prompts tell which of them begin alike.
    workload = open_workload(options.dataset, Served("text", tokenize=_words))
    conversations = workload.conversations(options.prompts_of(load), seed)
    for number, start_s in enumerate(start_times(load, len(conversations), seed)):
        yield from _turns(conversations[number], start_s, number)


def _turns(conversation: Conversation, start_s: float, number: int) -> Iterator[_Line]:
    """The requests of a conversation, each with all that was said before."""
    full: list[bytes] = []  # blocks
    rest: list[str] = []  # tokens after them
    for place, turn in enumerate(conversation.turns):
        assert isinstance(turn.prompt, str)
        assert turn.output_len is not None
        start_s += turn.pause_s
        rest = _cut(full, rest + turn.prompt.split())
        last = [_block(full, rest)] if rest else []
        yield _Line(start_s, len(full) * MOONCAKE_BLOCK_LEN + len(rest), turn.output_len, (*full, *last))
        rest = _cut(full, rest + [f"answer-{number}-{place}"] * turn.output_len)
        start_s += turn.output_len * ANSWER_TOKEN_S


def _cut(full: list[bytes], tokens: list[str]) -> list[str]:
    """Move whole blocks to those that are full. Returns what is left."""
    while len(tokens) >= MOONCAKE_BLOCK_LEN:
        full.append(_block(full, tokens[:MOONCAKE_BLOCK_LEN]))
        tokens = tokens[MOONCAKE_BLOCK_LEN:]
    return tokens


def _block(before: Sequence[bytes], tokens: Sequence[str]) -> bytes:
    chain = before[-1] if before else b""
    return hashlib.blake2b(chain + " ".join(tokens).encode(), digest_size=16).digest()


_NUMBERS = {word: number for number, word in enumerate(GUESSED.words)}


def _words(text: str) -> list[int]:
    return [_NUMBERS[word] for word in text.split()]
