"""What a server recorded as load: the requests of production, again."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freehold.errors import ConfigError
from freehold.loadtest.workloads.base import Conversation, Turn
from freehold.loadtest.workloads.on_demand import OnDemand
from freehold.loadtest.workloads.trace_files import Traced
from freehold.observe.record.reader import RecordedRequest, open_recording
from freehold.protocol import Sampling


@dataclass(frozen=True, slots=True)
class RecordingTrace:
    """Lengths, times and common beginnings of a recording, which any server can be asked for."""

    path: Path

    def requests(self) -> Iterator[Traced]:
        """As `TraceFile.requests`.

        Raises:
            RecordingError: the recording can't be read.
        """
        with open_recording(self.path) as recording:
            for each in recording.requests():
                if each.num_output_tokens:
                    # Hashes of different runs say nothing of each other.
                    blocks = tuple(each.header.run << 64 | name for name in each.begun.hash_ids)
                    yield Traced(each.began_unix_s, each.begun.num_prompt_tokens, each.num_output_tokens, blocks)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The recorded prompts themselves, with their parameters. Needs a recording in full detail, and the same model."""

    path: Path
    speed: float = 1.0

    @property
    def name(self) -> str:
        """As in `Workload`."""
        return "recording"

    @property
    def shares_prefixes(self) -> bool:
        """As in `Workload`."""
        return True

    def conversations(self, num: int, seed: int) -> Sequence[Conversation]:  # noqa: ARG002  they are what they are
        """As `Workload.conversations`, but of every seed the same.

        Raises:
            RecordingError: the recording can't be read.
        """
        with open_recording(self.path) as recording:
            taken = list(itertools.islice((each for each in recording.requests() if each.num_output_tokens), num))
        if not taken:
            raise ConfigError(f"{self.path} has no request that was answered")
        return OnDemand(len(taken), lambda index: self._conversation(taken[index], taken[0].began_unix_s))

    def _conversation(self, recorded: RecordedRequest, first_s: float) -> Conversation:
        generate = recorded.begun.generate
        if generate is None:
            raise ConfigError(f"{self.path} holds no prompts; replay it with --trace-length-scale 1, as a trace")
        ids = generate.prompt_ids
        turn = Turn(ids, recorded.num_output_tokens, fields=_fields(generate.sampling), input_len=len(ids))
        return Conversation((turn,), (recorded.began_unix_s - first_s) / self.speed)


def has_prompts(path: Path) -> bool:
    """Whether a recording holds prompts, and not only their lengths.

    Raises:
        RecordingError: the recording can't be read.
    """
    with open_recording(path) as recording:
        return all(each.begun.generate is not None for each in recording.requests())


def _fields(sampling: Sampling) -> dict[str, Any]:
    """Parameters of a request that the load tester doesn't set itself, as the API calls them."""
    fields: dict[str, Any] = {"temperature": sampling.temperature, "seed": sampling.seed}
    for name, off in (("top_k", 0), ("top_p", 1.0), ("min_p", 0.0)):
        if getattr(sampling, name) != off:
            fields[name] = getattr(sampling, name)
    if sampling.stop_ids:
        fields["stop_token_ids"] = sorted(sampling.stop_ids)
    return fields
