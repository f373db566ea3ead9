"""Law 1 and what was computed before: cold, warm or in part, the cache changes nothing but how much is computed."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from engine_answers import LARGEST, NUM_IDS, Answer, a_request, answers, case_id, smallest_pool, started
from kinds import REAL, Kind
from msgspec import structs
from test_engine_equivalence import TINY_CASES
from tiny_models import token_ids

from freehold.protocol import Generate

SHARED = [1, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 76]  # beginnings of prompts, around the borders of blocks


def sharing(vocab_size: int, lengths: Sequence[int]) -> list[Generate]:
    """Requests whose prompts begin alike: one long, its beginnings of some lengths, each alone and with other ids after
    it, and the long one four times more."""
    long = tuple(i % vocab_size for i in token_ids(LARGEST, seed=100))
    prompts = [long]
    for num_shared in lengths:
        prompts += [long[:num_shared], (*long[:num_shared], (long[num_shared] + 1) % vocab_size, *long[:7])]
    prompts += [long] * 4
    return [a_request(i, prompt, sampling=i, vocab_size=vocab_size) for i, prompt in enumerate(prompts)]


def next_turns(wanted: Sequence[Generate], before: Sequence[Answer]) -> list[Generate]:
    """Each request again, with its answer and a little more after its prompt."""
    return [
        structs.replace(request, prompt_ids=(*request.prompt_ids, *answer.token_ids, 1, 2, 3))
        for request, answer in zip(wanted, before, strict=True)
    ]


def check_reuse(answer: Answer, request: Generate, least: int) -> None:
    """Nothing of a prompt that is to be scored is reused, since its logits are needed."""
    if request.sampling.num_prompt_logprobs is None:
        assert answer.num_cached >= least
    else:
        assert answer.num_cached == 0


def check_cache(path: Path, kind: Kind, lengths: Sequence[int] = SHARED) -> None:
    """Cold, warm, in part, all at once, and evicted all the time."""
    with started(path, kind, prefix_caching=False) as engine:
        wanted = sharing(engine.info.vocab_size, lengths)
        truth = [answers(engine, [request])[0] for request in wanted]
        turns = next_turns(wanted, truth)
        turns_truth = [answers(engine, [request])[0] for request in turns]
        assert {answer.num_cached for answer in truth + turns_truth} == {0}
    with started(path, kind, max_num_batched_tokens=17) as engine:
        assert [answers(engine, [request])[0] for request in wanted[:1]] == truth[:1], "cold"
        for again in range(2):
            found = [answers(engine, [request])[0] for request in wanted]
            assert found == truth, "in part or whole from the cache"
            for answer, request in zip(found, wanted, strict=True):
                check_reuse(answer, request, len(request.prompt_ids) - (1 if again else 9))
        found = [answers(engine, [request])[0] for request in turns]
        assert found == turns_truth, "answers from the cache"
        for answer, before in zip(found, wanted, strict=True):
            check_reuse(answer, before, len(before.prompt_ids) + NUM_IDS - 1)
    with started(path, kind) as engine:
        found = answers(engine, wanted)
        assert found == truth, "all at once"
        assert any(answer.num_cached for answer in found)
    with started(path, kind, max_num_batched_tokens=64, **smallest_pool(path, kind)) as engine:
        short = [request for request in wanted if len(request.prompt_ids) < LARGEST - 8]
        short_truth = [one for one in truth if one.finish.num_prompt_tokens < LARGEST - 8]
        assert answers(engine, short) == answers(engine, short) == short_truth, "evicted all the time"


@pytest.mark.parametrize(("model", "kind"), TINY_CASES, ids=case_id)
def test_tiny_models(model: tuple[str, str], kind: Kind, tiny) -> None:  # pc-01, pc-02, pc-05
    check_cache(tiny(*model).path, kind)


def test_the_real_model(smollm2_path: Path) -> None:
    check_cache(smollm2_path, Kind("cpu", "int8"), lengths=[17, 64])


@pytest.mark.slow
@pytest.mark.parametrize("kind", REAL, ids=str)
def test_the_real_model_in_every_way(kind: Kind, smollm2_path: Path) -> None:
    check_cache(smollm2_path, kind)
