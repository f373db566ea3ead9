"""Random requests, as a seed decides, and what each must answer: a pure function of its prompt."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from msgspec import structs

from freehold.backends.script import FailStep, Item, NotFinite, Pause, Scripts
from freehold.protocol import Generate, RequestId, Sampling

Moment = Literal["at once", "after some ids", "before the last id", "after a while"]
MOMENTS: tuple[Moment, ...] = ("at once", "after some ids", "before the last id", "after a while")

NORMAL, SLOW, NAN, FAILING = 60000, 60001, 60002, 60003
"""The first id of a scripted prompt says what its answer is like."""

NUM_IDS = 40
FAULT_AT = 5


@dataclass(frozen=True)
class Job:
    """One request, and when it is cancelled.

    Attributes:
        cancel: None if it isn't.
        cancel_after: ids, or seconds, as `cancel` has it.
    """

    generate: Generate
    cancel: Moment | None = None
    cancel_after: float = 0.0


@dataclass(frozen=True)
class Mix:
    """What the traffic is made of. Shares are of all requests.

    Attributes:
        vocab_size: prompts of the scripted backend begin with an id that is above it.
    """

    vocab_size: int = 50000
    is_scripted: bool = True
    cancel_share: float = 0.7
    fault_share: float = 0.02
    deadline_share: float = 0.05
    longest_prompt: int = 150


def jobs(seed: int, mix: Mix) -> Iterator[Job]:
    """Without end; the same for the same seed. Some come in groups: answers to one prompt."""
    source = random.Random(seed)
    families = [[source.randrange(mix.vocab_size) for _ in range(mix.longest_prompt)] for _ in range(6)]
    number = 0
    while True:
        num_choices = source.choice((1, 1, 1, 1, 2, 3))
        prompt = _prompt(source, mix, families)
        sampling_seed = source.randrange(1 << 53)
        for choice in range(num_choices):
            generate = _generate(source, mix, prompt, RequestId(f"{seed}-{number}"), choice, sampling_seed)
            if num_choices > 1:
                generate = structs.replace(generate, family=f"{seed}-{number - choice}")
            yield _cancelled(source, mix, generate)
            number += 1


def answer(prompt_ids: tuple[int, ...]) -> list[Item]:
    """The script of the scripted backend."""
    source = random.Random(str(prompt_ids))
    ids: list[Item] = [source.randrange(50000) for _ in range(NUM_IDS)]
    match prompt_ids[0]:
        case 60001:
            return [item for token_id in ids for item in (Pause(0.003), token_id)]
        case 60002:
            return [*ids[:FAULT_AT], NotFinite(), *ids[FAULT_AT:]]
        case 60003:
            return [*ids[:FAULT_AT], FailStep(), *ids[FAULT_AT:]]
    return ids


def scripts() -> Scripts:
    """For the scripted backend."""
    return Scripts(answer)


def scripted_ids(generate: Generate) -> list[int]:
    """What a scripted request answers if nothing comes between."""
    ids = [item for item in answer(generate.prompt_ids) if isinstance(item, int)]
    return [ids[i % len(ids)] for i in range(generate.sampling.max_tokens)]


def _prompt(source: random.Random, mix: Mix, families: list[list[int]]) -> tuple[int, ...]:
    num_shared = source.randint(0, mix.longest_prompt - 10)
    own = [source.randrange(mix.vocab_size) for _ in range(source.randint(1, 9))]
    ids = [*source.choice(families)[:num_shared], *own]
    if not mix.is_scripted:
        return tuple(ids)
    faulty = source.choice((NAN, FAILING)) if source.random() < mix.fault_share else None
    return (faulty or source.choice((NORMAL, NORMAL, SLOW)), *ids)


def _generate(
    source: random.Random, mix: Mix, prompt: tuple[int, ...], request_id: RequestId, choice: int, seed: int
) -> Generate:
    sampling = Sampling(
        temperature=source.choice((0.0, 1.0)),
        seed=seed,
        choice=choice,
        max_tokens=source.randint(1, NUM_IDS),
        num_logprobs=source.choice((None, None, None, 2)),
    )
    return Generate(
        request_id=request_id,
        prompt_ids=prompt,
        sampling=sampling,
        digests=True,
        cache_namespace=source.choice(("", "", "other")),
        service=source.choice(("interactive", "agent", "batch")),
        priority=source.randint(-1, 1),
        deadline_s=source.uniform(0.0, 0.2) if source.random() < mix.deadline_share else None,
    )


def _cancelled(source: random.Random, mix: Mix, generate: Generate) -> Job:
    if source.random() >= mix.cancel_share:
        return Job(generate)
    moment = source.choice(MOMENTS)
    if moment == "after some ids":
        return Job(generate, moment, source.randint(1, 10))
    if moment == "before the last id":
        return Job(generate, moment, max(1, generate.sampling.max_tokens - 1))
    return Job(generate, moment, source.uniform(0.0, 0.1) if moment == "after a while" else 0.0)
