"""Real texts as load: some of a file's conversations, others for each point."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from freehold.errors import ConfigError
from freehold.loadtest.workloads.base import Conversation, Prompt, Turn
from freehold.loadtest.workloads.text_files import Entry, TextFile

CountTokens = Callable[[str], int]

_FEWEST_TOKENS = 4  # shorter prompts and answers say little; vLLM leaves them out too


@dataclass(frozen=True, slots=True)
class Texts:
    """Conversations of a file.

    Attributes:
        name: as in `Workload`.
        count: tokens of a text, exactly or about.
        output_len: tokens of each answer; None: as many as the file's answer has, or the server decides.
        max_turns: of a conversation; later ones are left out.
        max_model_len: tokens of context; None if nobody knows. Turns that don't fit are left out.
        is_verbatim: prompts are exactly the file's. Otherwise they begin with a mark that differs between points, so
            that no server can have a point's prompts in its cache from the one before.
    """

    name: str
    file: TextFile
    count: CountTokens
    output_len: int | None = None
    max_turns: int = 1
    max_model_len: int | None = None
    is_verbatim: bool = False

    @property
    def shares_prefixes(self) -> bool:
        """As in `Workload`."""
        return self.is_verbatim or self.max_turns > 1

    def conversations(self, num: int, seed: int) -> Sequence[Conversation]:
        """As `Workload.conversations`. Reads the whole file, and keeps of it what it takes."""
        source = random.Random(seed)
        spare = num // 4 + 8  # some turn out too long or too short
        made: list[Conversation] = []
        for index, entry in enumerate(_sample(self.file.entries(), num + spare, source)):
            turns = tuple(self._turns(entry, "" if self.is_verbatim else f"[{seed:x}.{index:x}] "))
            if turns and len(made) < num:
                made.append(Conversation(turns))
        if not made:
            raise ConfigError(f"{self.file.path} has no conversation that can be used: all are empty or too long")
        return made

    def _turns(self, entry: Entry, mark: str) -> Iterator[Turn]:
        context = 0
        for number in range(min(len(entry.asked), self.max_turns)):
            asked, answer = entry.asked[number], entry.answered[number]
            output_len = self.output_len or entry.output_len or (None if answer is None else self.count(answer))
            context += self._length(asked) + (output_len or 1)
            is_short = answer is not None and (output_len or 0) < _FEWEST_TOKENS
            if is_short or (self.max_model_len is not None and context > self.max_model_len):
                return
            yield Turn(_marked(asked, mark if not number else ""), output_len)

    def _length(self, asked: Prompt) -> int:
        if isinstance(asked, str):
            return self.count(asked)
        return sum(self.count(str(message.get("content", ""))) for message in asked if isinstance(message, dict))


def _marked(asked: Prompt, mark: str) -> Prompt:
    if isinstance(asked, str):
        return mark + asked
    first, *others = asked
    assert isinstance(first, dict)
    content = first.get("content")
    return ({**first, "content": mark + content}, *others) if isinstance(content, str) else asked


def _sample(entries: Iterator[Entry], num: int, source: random.Random) -> list[Entry]:
    """So many entries, each as likely as any other, in random order, in one pass (Vitter's algorithm R)."""
    kept: list[Entry] = []
    for number, entry in enumerate(entries):
        if number < num:
            kept.append(entry)
        elif (place := source.randrange(number + 1)) < num:
            kept[place] = entry
    source.shuffle(kept)
    return kept
