"""Requests that belong together: conversations, agents at work, and many users of the same few instructions."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from freehold.errors import ConfigError
from freehold.loadtest.workloads.base import Conversation, Prompt, Turn
from freehold.loadtest.workloads.filler import Filler
from freehold.loadtest.workloads.lengths import Lengths
from freehold.loadtest.workloads.on_demand import OnDemand


@dataclass(frozen=True, slots=True)
class Sessions:
    """Conversations of several requests, each with all that was said before: contexts grow.

    With `opening` and pauses they are agents: instructions and tools that all have in common, a call, a pause while the
    tool works, its result.

    Attributes:
        name: as in `Workload`.
        steps: requests of a conversation.
        input: tokens that each of them adds.
        output: tokens of each answer, which the next prompt holds as the server gave it.
        opening: tokens that all conversations of a point begin with, before their first input; None for none.
        pause_s: mean of the pause before each request but the first. Pauses are exponentially distributed.
        max_model_len: tokens of context; None if nobody knows. A conversation that would outgrow it ends.
    """

    name: str
    steps: Lengths
    input: Lengths
    output: Lengths
    filler: Filler
    opening: Lengths | None = None
    pause_s: float = 0.0
    max_model_len: int | None = None

    @property
    def shares_prefixes(self) -> bool:
        """As in `Workload`."""
        return True

    def conversations(self, num: int, seed: int) -> Sequence[Conversation]:
        """As `Workload.conversations`."""
        if not 0 <= self.pause_s < float("inf"):
            raise ConfigError(f"pauses of {self.pause_s} s can't be; they are a number of seconds, at least 0")
        source = random.Random(f"{seed} opening")
        opening = self.filler.draw(self.opening.draw(source), source) if self.opening else []
        return OnDemand(num, lambda index: self._conversation(opening, random.Random(f"{seed} {index}")))

    def _conversation(self, opening: list[int], source: random.Random) -> Conversation:
        turns: list[Turn] = []
        context = 0
        for number in range(self.steps.draw(source)):
            input_len, output_len = self.input.draw(source), self.output.draw(source)
            pause_s = source.expovariate(1 / self.pause_s) if number and self.pause_s else 0.0
            given = opening if not number else []
            around = _overhead(self.filler, with_system=bool(given))
            room = (self.max_model_len or 1 << 40) - context - len(given) - around
            if number and input_len + output_len > room:
                break
            if room < 2:
                raise ConfigError(
                    f"{self.name}: beginnings of {len(given) + around} tokens don't fit the model's context of "
                    f"{self.max_model_len}; ask for shorter ones"
                )
            output_len = min(output_len, room - 1)
            drawn = self.filler.draw(min(input_len, room - output_len), source)
            context += len(given) + around + len(drawn) + output_len
            prompt = _prompt(self.filler, given, drawn, goes_on=bool(number))
            whole_len = None if number else len(given) + around + len(drawn)
            turns.append(Turn(prompt, output_len, pause_s, input_len=whole_len))
        return Conversation(tuple(turns))


@dataclass(frozen=True, slots=True)
class SharedPrefixes:
    """Single requests that begin with one of a few prefixes, in turn: so many sessions of each.

    Attributes:
        num_prefixes: that a point has.
        prefix: tokens of each; in chats the system message.
        suffix: tokens that follow, another text for each request.
        output: tokens of answers.
    """

    num_prefixes: int
    prefix: Lengths
    suffix: Lengths
    output: Lengths
    filler: Filler
    max_model_len: int | None = None

    @property
    def name(self) -> str:
        """As in `Workload`."""
        return "prefix_repetition"

    @property
    def shares_prefixes(self) -> bool:
        """As in `Workload`."""
        return True

    def conversations(self, num: int, seed: int) -> Sequence[Conversation]:
        """As `Workload.conversations`."""
        if self.num_prefixes < 1:
            raise ConfigError(f"--prefix-repetition-num-prefixes can't be {self.num_prefixes}; it is at least 1")
        return OnDemand(num, lambda index: self._conversation(index % self.num_prefixes, index, seed))

    def _conversation(self, prefix_number: int, index: int, seed: int) -> Conversation:
        shared, own = random.Random(f"{seed} prefix {prefix_number}"), random.Random(f"{seed} {index}")
        prefix = self.filler.draw(self.prefix.draw(shared), shared)
        suffix = self.filler.draw(self.suffix.draw(own), own)
        output_len = self.output.draw(own)
        input_len = len(prefix) + len(suffix) + _overhead(self.filler, with_system=True)
        if self.max_model_len is not None and input_len + output_len > self.max_model_len:
            raise ConfigError(
                f"prompts of {input_len} tokens and answers of {output_len} don't fit the model's context of "
                f"{self.max_model_len}; ask for shorter prefixes, suffixes or answers"
            )
        return Conversation((Turn(_prompt(self.filler, prefix, suffix), output_len, input_len=input_len),))


def _overhead(filler: Filler, *, with_system: bool) -> int:
    is_own_message = with_system and filler.system_overhead is not None
    return (filler.system_overhead or 0) if is_own_message else filler.overhead


def _prompt(filler: Filler, before: Sequence[int], drawn: Sequence[int], *, goes_on: bool = False) -> Prompt:
    """What a request adds; what all have in common is the system message of chats whose template takes one."""
    if filler.form != "chat" or filler.system_overhead is None or not before:
        return filler.prompt([*before, *drawn], goes_on=goes_on and filler.form == "text")
    return (
        {"role": "system", "content": filler.text(before)},
        {"role": "user", "content": filler.text(drawn)},
    )
