"""Traces: files that say when requests came and how long they were, but not what they said.

| form | time | lengths | what begins alike |
|---|---|---|---|
| Mooncake JSONL | ``timestamp`` in ms | ``input_length``, ``output_length`` | ``hash_ids``, one for 512 tokens |
| vLLM's timed trace | ``timestamp`` in ms | the same | ``hash_ids``, one for 16 tokens; columns may be renamed |
| Azure CSV | ``TIMESTAMP`` | ``ContextTokens``, ``GeneratedTokens`` | – |
| BurstGPT CSV | ``Timestamp`` in s | ``Request tokens``, ``Response tokens`` | – |
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from freehold.loadtest.workloads.lines import Row, csv_rows, json_rows

MOONCAKE_BLOCK_LEN = 512

COLUMNS = ("timestamp", "input_length", "output_length", "hash_ids")
"""Of Mooncake's form."""


@dataclass(frozen=True, slots=True)
class Traced:
    """One request of a trace.

    Attributes:
        start_s: seconds since some moment.
        input_len, output_len: in tokens.
        blocks: names of the prompt's blocks, the last one partly full; equal ones hold equal tokens. Empty if the trace
            doesn't tell.
    """

    start_s: float
    input_len: int
    output_len: int
    blocks: tuple[int, ...] = ()


class TraceFile(Protocol):
    """A trace in some form."""

    @property
    def path(self) -> Path:
        """For messages."""
        ...

    def requests(self) -> Iterator[Traced]:
        """The requests, in the file's order, read as they are asked for.

        Raises:
            ConfigError: the file can't be read, or a line of it; the message names line and field.
        """
        ...


@dataclass(frozen=True, slots=True)
class JsonTrace:
    """A trace as JSONL.

    Attributes:
        block_len: tokens that one of ``hash_ids`` stands for.
        unit_s: seconds of the time's unit.
        columns: own names of `COLUMNS`, by those.
    """

    path: Path
    block_len: int = MOONCAKE_BLOCK_LEN
    unit_s: float = 0.001
    columns: Mapping[str, str] = field(default_factory=dict)

    def requests(self) -> Iterator[Traced]:
        """As `TraceFile.requests`."""
        for row in json_rows(self.path):
            time, input_len, output_len, hashes = (self.columns.get(name, name) for name in COLUMNS)
            length = row.count(input_len)
            yield Traced(
                row.number_of(time) * self.unit_s,
                length,
                row.count(output_len),
                self._blocks(row, hashes, length),
            )

    def _blocks(self, row: Row, name: str, input_len: int) -> tuple[int, ...]:
        given = row.get(name)
        if given is None:
            return ()
        if not isinstance(given, list) or not all(type(each) is int for each in given):
            row.refuse(name, "a list of whole numbers")
        num_needed = -(-input_len // self.block_len)
        if len(given) != num_needed:
            row.refuse(name, f"a list of {num_needed}: one for each {self.block_len} of {input_len} tokens")
        return tuple(given)


@dataclass(frozen=True, slots=True)
class AzureTrace:
    """A trace of Azure's public data set."""

    path: Path

    def requests(self) -> Iterator[Traced]:
        """As `TraceFile.requests`."""
        for row in csv_rows(self.path, ("TIMESTAMP", "ContextTokens", "GeneratedTokens")):
            yield Traced(_moment(row, "TIMESTAMP"), row.count("ContextTokens"), row.count("GeneratedTokens"))


@dataclass(frozen=True, slots=True)
class BurstTrace:
    """A trace of BurstGPT. Rows without any response tokens are requests that failed; they are left out."""

    path: Path

    def requests(self) -> Iterator[Traced]:
        """As `TraceFile.requests`."""
        for row in csv_rows(self.path, ("Timestamp", "Request tokens", "Response tokens")):
            output_len = row.count("Response tokens", least=0)
            if output_len:
                yield Traced(row.number_of("Timestamp"), row.count("Request tokens"), output_len)


def _moment(row: Row, name: str) -> float:
    """A date with time, in seconds. Digits beyond microseconds are cut off."""
    text = re.sub(r"(\.\d{6})\d+", r"\1", row.text(name))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        row.refuse(name, "a date and time, such as 2023-11-16 18:15:46.68")
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
