"""Several answers to one prompt: it is computed once, whatever becomes of whom, with and without a prefix cache."""

import pytest
from reuse_engine import BLOCK, Engine, some_ids

from freehold.backends.script import FailStep, NotFinite
from freehold.sched.request import Status

SIZES = [1, 2, 10, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 9, 5 * BLOCK]
NAMES = ["0", "1", "2", "3", "4"]


def ask_all(engine: Engine, prompt: list[int], names: list[str] = NAMES, max_tokens: int = 6) -> None:
    for name in names:
        engine.ask(name, prompt, max_tokens=max_tokens, family="family")


def truth(prompt: list[int], max_tokens: int = 6) -> tuple[list[int], list[int]]:
    engine = Engine(prefix_caching=False)
    engine.answer("alone", prompt, max_tokens=max_tokens)
    return engine.ids["alone"], engine.digests["alone"]


@pytest.mark.parametrize("num_prompt", SIZES)
@pytest.mark.parametrize("budget", [7, 64, 512])
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_a_prompt_is_computed_once_and_its_last_token_by_each(
    num_prompt: int, budget: int, prefix_caching: bool
) -> None:
    engine, prompt = Engine(budget=budget, prefix_caching=prefix_caching), some_ids(num_prompt, "prompt")
    ask_all(engine, prompt)
    engine.finish()
    num_answers = len(NAMES) * (6 - 1)
    assert engine.loop.num_computed == num_prompt + (len(NAMES) - 1) + num_answers
    assert [engine.cached(name) for name in NAMES] == [0, *[num_prompt - 1] * 4]
    for name in NAMES:
        assert (engine.ids[name], engine.digests[name]) == truth(prompt)


@pytest.mark.parametrize("num_prompt", SIZES)
@pytest.mark.parametrize("late", [1, 2, 3, 5])
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_one_that_comes_later_finds_all_that_is_computed(num_prompt: int, late: int, prefix_caching: bool) -> None:
    """Also the block that the first still writes its answer to."""
    engine, prompt = Engine(prefix_caching=prefix_caching), some_ids(num_prompt, "prompt")
    engine.ask("0", prompt, max_tokens=20, family="family")
    for _ in range(late):
        engine.loop.step()
    ask_all(engine, prompt, NAMES[1:], 20)
    engine.finish()
    assert [engine.cached(name) for name in NAMES] == [0, *[num_prompt - 1] * 4]
    assert engine.ids["0"] == engine.ids["4"] == truth(prompt, 20)[0]


def test_without_a_prefix_cache_nobody_else_shares_and_nothing_stays() -> None:
    engine, prompt = Engine(prefix_caching=False), some_ids(3 * BLOCK + 5, "prompt")
    ask_all(engine, prompt, max_tokens=20)
    engine.ask("stranger", prompt, max_tokens=20)
    engine.ask("cousin", prompt, max_tokens=20, family="other")
    engine.ask("namesake", prompt, max_tokens=20, family="family", namespace="other")
    engine.loop.step()
    assert engine.statuses()["stranger"] is engine.statuses()["cousin"] is Status.RUNNING, "they wait for nobody"
    for _ in range(8):
        engine.loop.step()
    assert len(engine.scheduler.memory.tree) > 0
    engine.finish()
    assert [engine.cached(name) for name in ("stranger", "cousin", "namesake")] == [0, 0, 0]
    assert engine.cached("4") == len(prompt) - 1
    assert engine.scheduler.pool.num_free == engine.scheduler.pool.num_blocks
    ask_all(engine, prompt, ["again"])
    engine.finish()
    assert engine.cached("again") == 0


def test_what_a_family_shares_lasts_as_long_as_its_last_member() -> None:
    engine, prompt = Engine(prefix_caching=False), some_ids(3 * BLOCK + 5, "prompt")
    engine.ask("0", prompt, max_tokens=40, family="family")
    engine.ask("1", prompt, max_tokens=5, family="family")
    while "1" not in engine.finishes:
        engine.loop.step()
    ask_all(engine, prompt, ["2"])
    engine.finish()
    assert engine.cached("2") == len(prompt) - 1
    assert engine.scheduler.pool.num_free == engine.scheduler.pool.num_blocks


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("how", ["abort", "preempt", "numeric", "step"])
@pytest.mark.parametrize(("budget", "when"), [*((32, when) for when in range(9)), *((512, when) for when in range(4))])
def test_when_the_first_leaves_another_takes_over(how: str, budget: int, when: int, prefix_caching: bool) -> None:
    """In every state of the one that computes the prompt for all. What it has computed isn't computed again, unless it
    is suspect; and the pool is clean in the end."""
    engine, prompt = Engine(budget=budget, prefix_caching=prefix_caching), some_ids(5 * BLOCK + 3, "prompt")
    leader = [*prompt[:-1], 1] if how in {"numeric", "step"} else prompt
    if how == "numeric":
        engine.scripts.add(leader, [5] * (when // 3) + [NotFinite(), 5])
    elif how == "step":
        engine.scripts.add(leader, [5] * (when // 3) + [FailStep(), 5])
    engine.ask("leader", leader, family="family")
    ask_all(engine, prompt, ["1", "2", "3"])
    for _ in range(when):
        engine.loop.step()
    if how == "abort":
        engine.abort("leader")
    elif how == "preempt" and engine.scheduler.running:
        engine.scheduler.preempt(engine.scheduler.running[0])
    engine.finish()
    for name in ("1", "2", "3"):
        if how == "step" and engine.finishes[name].code == "step_failed":
            continue
        assert (engine.ids[name], engine.digests[name]) == truth(prompt)
    if how in {"abort", "preempt"}:
        # The prompt once, what was on its way, the last token and the answer of each.
        assert engine.loop.num_computed <= len(prompt) + 2 * budget + 4 * 8
        assert engine.cached("2") >= 5 * BLOCK
        assert engine.cached("3") == len(prompt) - 1
    if not prefix_caching:
        assert engine.scheduler.pool.num_free == engine.scheduler.pool.num_blocks


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_all_leave_at_any_moment(prefix_caching: bool) -> None:
    prompt = some_ids(3 * BLOCK + 7, "prompt")
    for when in range(12):
        for first_to_leave in (0, 2, 4):
            engine = Engine(budget=40, prefix_caching=prefix_caching)
            ask_all(engine, prompt, max_tokens=4)
            for _ in range(when):
                engine.loop.step()
            for name in NAMES[first_to_leave:] + NAMES[:first_to_leave]:
                engine.abort(name)
                engine.loop.step()
            engine.finish()
            assert engine.finishes.keys() == set(NAMES)


def test_who_is_more_urgent_waits_for_nobody_less_urgent() -> None:
    """A batch request computes a long prompt; an interactive one with the same prompt goes on from what is there, and
    doesn't wait for the rest of it to be computed with what the budget leaves."""
    engine, prompt = Engine(budget=64), some_ids(40 * BLOCK, "prompt")
    engine.ask("batch", prompt, service="batch")
    for _ in range(6):
        engine.loop.step()
    engine.ask("urgent", prompt)
    engine.loop.step()
    assert engine.statuses()["urgent"] is Status.RUNNING
    num_steps = 1
    while "urgent" not in engine.finishes:
        engine.loop.step()
        num_steps += 1
    assert engine.cached("urgent") == 5 * 64
    assert num_steps <= (40 * BLOCK - 5 * 64) // 64 + 8 + 3
    engine.finish()
