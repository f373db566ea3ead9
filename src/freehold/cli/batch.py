"""``freehold run --prompts FILE --output FILE``: a file of prompts becomes a file of answers."""

import itertools
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from freehold.cli.conversation import check_text, user
from freehold.errors import ConfigError, printable
from freehold.foreign_json import NOT_JSON

if TYPE_CHECKING:
    from freehold.llm import LLM
    from freehold.text.params import SamplingParams

Message = dict[str, Any]
Prompt = str | Sequence[Message]


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """A line of a JSONL file of prompts: a prompt or a conversation."""

    prompt: str | None = None
    messages: list[Message] | None = None


_decoder: msgspec.json.Decoder[str | _Line] = msgspec.json.Decoder(str | _Line)


@dataclass(frozen=True, slots=True)
class _Counted:
    """Prompts whose number a progress bar can show."""

    prompts: Iterable[Prompt]
    number: int

    def __iter__(self) -> Iterator[Prompt]:
        return iter(self.prompts)

    def __len__(self) -> int:
        return self.number


def open_prompts(path: Path, system: Sequence[Message], *, raw: bool) -> Iterable[Prompt]:
    """What `read_prompts` reads, with a length if the file has an end to count to.

    Raises:
        ConfigError: there are no prompts; and as from `read_prompts`.
    """
    prompts = read_prompts(path, system, raw=raw)
    number = _count(path)
    first = list(itertools.islice(prompts, 1))
    if not first:
        raise ConfigError(f"{path} holds no prompts; write one a line")
    all_prompts = itertools.chain(first, prompts)
    return all_prompts if number is None else _Counted(all_prompts, number)


def read_prompts(path: Path, system: Sequence[Message], *, raw: bool) -> Iterator[Prompt]:
    """The prompts of a file, one a line, read as they are asked for. Empty lines are none.

    Args:
        system: messages before each prompt.
        raw: prompts are continued as they are, without chat template.

    Raises:
        ConfigError: the file can't be read, or a line of it.
    """
    try:
        with path.open(encoding="utf-8", errors="surrogateescape") as lines:
            for number, line in enumerate(lines, start=1):
                place = f"line {number} of {path}"
                text = check_text(line, place).strip()
                if not text:
                    continue
                prompt = _of_json(text, place) if path.suffix == ".jsonl" else text
                if not isinstance(prompt, str):
                    yield [*system, *prompt]
                else:
                    yield prompt if raw else [*system, user(prompt)]
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror}") from None


def answer_all(llm: "LLM", prompts: Iterable[Prompt], params: "SamplingParams", output: Path) -> bool:
    """Answer the prompts and record the answers; those that the output holds already aren't computed again.

    Returns:
        Whether all succeeded.

    Raises:
        ConfigError: see `read_prompts`.
        JournalError: the output is of another model or other parameters.
    """
    from freehold.llm.progress import tell

    before = _size(output)
    num_answers = num_failed = 0
    for completion in llm.generate_each(prompts, params, journal=output, progress=True):
        num_answers += 1
        if completion.error is not None:
            num_failed += 1
            tell(f"freehold: prompt {completion.prompt_index}: {printable(completion.error)}")
    if not num_failed and _size(output) == before:
        tell(f"freehold: nothing was missing; {output} holds all {num_answers} answers")
    return not num_failed


def _count(path: Path) -> int | None:
    """Lines that hold a prompt; None for what can be read but once, such as a pipe.

    Raises:
        ConfigError: the file can't be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open(encoding="utf-8", errors="surrogateescape") as lines:
            return sum(not line.isspace() for line in lines)
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror}") from None


def _size(path: Path) -> int:
    """Bytes of a file, 0 if there is none."""
    return path.stat().st_size if path.exists() else 0


def _of_json(text: str, place: str) -> Prompt:
    try:
        line = _decoder.decode(text)
    except NOT_JSON as error:
        raise ConfigError(f"{place} is no prompt: {error}") from None
    if isinstance(line, str):
        return line
    given: list[Prompt] = [prompt for prompt in (line.prompt, line.messages) if prompt]
    if len(given) != 1:
        raise ConfigError(f'{place} is no prompt: it must be a string, {{"prompt": …}} or {{"messages": […]}}')
    return given[0]
