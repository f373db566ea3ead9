"""What is reused and what is computed again, counted exactly, on the refereed scripted model."""

import random

import pytest
from reuse_engine import BLOCK, Engine, some_ids
from scheduler_trace import Case, Run, Trace, check_results

from freehold.backends.script import FailStep, NotFinite
from freehold.protocol import Pin
from freehold.sched.memory import namespace_of
from freehold.sched.request import Status


def test_32_sessions_of_4_turns_compute_their_common_beginning_once() -> None:
    """A common beginning of 1,500 tokens; each turn adds to what the session has said before. Every position is
    computed exactly once, by whoever comes to it first, and nothing but that: the best that any cache could do."""
    engine = Engine()
    num_sessions, num_turns, num_answer = 32, 4, 20
    common = some_ids(1500, "common")
    said = {s: list(common) for s in range(num_sessions)}
    best: list[tuple[str, int]] = []  # by request, ids that were computed before it
    for turn in range(num_turns):
        for s in range(num_sessions):
            said[s] += [s, *some_ids(10 + s + turn, (s, turn))]
            name = f"{s}.{turn}"
            engine.ask(name, said[s], max_tokens=num_answer)
            # The last id of an answer is sampled but never an input.
            first = 0 if s == 0 else len(common)
            best.append((name, first if turn == 0 else len(engine.ids[f"{s}.{turn - 1}"]) - 1))
        engine.finish()
        for s in range(num_sessions):
            said[s] = list(engine.ids[f"{s}.{turn}"])
            assert len(said[s]) == engine.finishes[f"{s}.{turn}"].num_prompt_tokens + num_answer

    assert [(name, engine.cached(name)) for name, _ in best] == best
    num_known = len(common) + sum(len(ids) - 1 - len(common) for ids in said.values())
    assert engine.loop.num_computed == num_known
    num_prompt = sum(finish.num_prompt_tokens for finish in engine.finishes.values())
    counts = engine.scheduler.memory.counts
    assert (counts.num_queried, counts.num_hit) == (num_prompt, sum(num for _, num in best))
    assert counts.num_hit / counts.num_queried > 0.9


@pytest.mark.parametrize("num_prompt", [BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK - 1, 3 * BLOCK, 3 * BLOCK + 1, 1, 2])
def test_the_last_token_of_a_prompt_is_always_computed(num_prompt: int) -> None:
    engine = Engine()
    prompt = some_ids(num_prompt, "prompt")
    assert engine.answer("cold", prompt).num_cached_tokens == 0
    assert engine.answer("warm", prompt).num_cached_tokens == num_prompt - 1
    assert engine.ids["warm"] == engine.ids["cold"]
    assert engine.digests["warm"] == engine.digests["cold"]


@pytest.mark.parametrize("num_shared", [1, 5, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 1, 99])
def test_what_two_prompts_share_is_reused_to_the_token(num_shared: int) -> None:
    engine = Engine()
    shared = some_ids(num_shared, "shared")
    engine.answer("one", [*shared, 1, *some_ids(50, "one")])
    assert engine.answer("two", [*shared, 2, *some_ids(50, "two")]).num_cached_tokens == num_shared
    assert engine.answer("three", [*shared, 1, *some_ids(50, "three")]).num_cached_tokens >= num_shared + 1


def test_namespaces_and_switched_off_caching_reuse_nothing() -> None:
    engine, prompt = Engine(), some_ids(100, "prompt")
    engine.answer("a", prompt, namespace="a")
    assert engine.answer("b", prompt, namespace="b").num_cached_tokens == 0
    assert engine.answer("a again", prompt, namespace="a").num_cached_tokens == 99
    engine = Engine(prefix_caching=False)
    engine.answer("a", prompt)
    assert engine.answer("b", prompt).num_cached_tokens == 0
    assert engine.scheduler.pool.num_free == 512
    engine.ask("c", prompt)
    engine.ask("d", prompt)
    engine.loop.step()
    assert set(engine.statuses().values()) == {Status.RUNNING}, "nobody waits for what can't be reused"
    engine.finish()


def test_equal_prompts_at_once_are_computed_once() -> None:
    engine, prompt = Engine(), some_ids(4 * BLOCK + 5, "prompt")
    for name in "abcdefgh":
        engine.ask(name, prompt, max_tokens=8)
    engine.finish()
    assert engine.cached("a") == 0
    assert [engine.cached(name) for name in "bcdefgh"] == [len(prompt) - 1] * 7
    assert engine.loop.num_computed == len(prompt) + 7 * 1 + 8 * 7
    assert len({tuple(ids) for ids in engine.ids.values()}) == 1


def test_followers_hold_up_nobody_and_start_when_their_leader_is_done() -> None:
    engine, prompt = Engine(budget=64), some_ids(10 * BLOCK, "prompt")
    engine.ask("leader", prompt)
    engine.loop.step()
    engine.ask("follower", [*prompt, 5])
    engine.ask("stranger", [7, 7, 7])
    started: dict[str, int] = {}
    for step in range(20):
        for name, status in engine.statuses().items():
            if status is Status.RUNNING:
                started.setdefault(name, step)
        engine.loop.step()
    assert started["stranger"] < started["follower"] <= 7, "5 steps of prompt, of which one had been planned"
    engine.finish()
    assert engine.cached("follower") == 10 * BLOCK


@pytest.mark.parametrize("how", ["abort", "preempt", "fail"])
@pytest.mark.parametrize(("budget", "when"), [*((64, when) for when in range(8)), *((512, when) for when in range(4))])
def test_a_follower_takes_over_when_its_leader_leaves(how: str, budget: int, when: int) -> None:
    """In every state of the leader. What it had computed is not computed again, unless it is suspect."""
    engine, prompt = Engine(budget=budget), some_ids(10 * BLOCK + 3, "prompt")
    if how == "fail":
        engine.scripts.add([*prompt[:-1], 1], [NotFinite(), 5])
    engine.ask("leader", [*prompt[:-1], 1])
    names = ["follower 1", "follower 2", "follower 3"]
    for name in names:
        engine.ask(name, prompt)
    for _ in range(when):
        engine.loop.step()
    if how == "abort":
        engine.abort("leader")
    elif how == "preempt" and (running := engine.scheduler.running):
        engine.scheduler.preempt(running[0])
    engine.finish()
    truth = Engine(prefix_caching=False)
    for name in names:
        truth.answer(name, prompt)
        assert engine.ids[name] == truth.ids[name]
        assert engine.digests[name] == truth.digests[name]
    if how != "fail":
        # The prompt once, at most two chunks that were lost on their way, and everyone's last block and answer.
        assert engine.loop.num_computed <= len(prompt) + 2 * 64 + 4 * (BLOCK + 8)
    assert all(engine.cached(name) >= 10 * BLOCK for name in names[1:])


def test_an_aborted_request_leaves_what_it_has_computed() -> None:
    """A chat is interrupted in the middle of an answer; with one more message it comes again."""
    engine, prompt = Engine(num_blocks=600), some_ids(8000, "prompt")
    engine.ask("first", prompt, max_tokens=1000)
    while len(engine.ids["first"]) < 8100:
        engine.loop.step()
    engine.abort("first")
    engine.finish()
    num_said = len(engine.ids["first"])
    again = [*engine.ids["first"], *some_ids(10, "again")]
    assert engine.answer("again", again).num_cached_tokens >= num_said - 1


def test_a_suspect_request_leaves_nothing() -> None:
    """Its logits held a NaN, so its keys and values may too."""
    engine, shared = Engine(), some_ids(2 * BLOCK, "shared")
    engine.answer("before", shared)
    prompt = [*shared, *some_ids(3 * BLOCK, "own")]
    engine.scripts.add(prompt, [5, 6, NotFinite(), 7])
    assert engine.answer("bad", prompt).reason == "failed"
    assert engine.answer("good", [*prompt, 3]).num_cached_tokens == 2 * BLOCK


@pytest.mark.parametrize("num_own", [1, 5, BLOCK, 3 * BLOCK])
def test_a_failed_step_leaves_nothing(num_own: int) -> None:
    """Nor does the step after it, which was in flight and went on from what the failed one wrote."""
    engine, shared = Engine(), some_ids(2 * BLOCK, "shared")
    engine.answer("before", shared)
    prompt = [*shared, *some_ids(num_own, "own")]
    engine.scripts.add(prompt, [FailStep(), 5, 6, 7])
    assert engine.answer("bad", prompt).code == "step_failed"
    assert engine.answer("good", [*prompt, 3]).num_cached_tokens == 2 * BLOCK


def test_preempted_requests_come_back_through_the_cache() -> None:
    """Two that together need more than there is: the newer one is preempted, and finds most of itself again."""
    engine = Engine(num_blocks=40)
    engine.ask("old", some_ids(20 * BLOCK - 40, "old"), max_tokens=150)
    engine.ask("new", some_ids(18 * BLOCK - 40, "new"), max_tokens=150)
    engine.finish()
    num_needed = sum(len(ids) - 1 for ids in engine.ids.values())
    assert engine.scheduler.num_preemptions > 0
    assert engine.loop.num_computed < num_needed + 8 * BLOCK
    assert engine.cached("new") == 0, "what a request itself had computed is not counted as reused"


def test_a_pinned_prompt_stays_for_its_time() -> None:
    """Through any number of other prompts, and no longer."""
    engine, prompt = Engine(num_blocks=20), some_ids(5 * BLOCK, "prompt")
    engine.answer("first", prompt)
    assert engine.scheduler.memory.pin(namespace_of(""), prompt, Pin(ttl_s=60.0)) == 5
    assert engine.scheduler.memory.pin(namespace_of("other"), prompt, Pin(ttl_s=60.0)) == 0

    def pass_by(kind: str) -> None:
        for i in range(10):
            engine.answer(f"{kind} {i}", some_ids(10 * BLOCK, (kind, i)))

    pass_by("before")
    engine.loop.now_s = 59.9
    assert engine.answer("pinned", [*prompt, 1]).num_cached_tokens == 5 * BLOCK
    pass_by("still")
    assert engine.answer("still pinned", [*prompt, 2]).num_cached_tokens == 5 * BLOCK
    engine.loop.now_s = 60.0
    pass_by("after")
    assert engine.answer("expired", [*prompt, 3]).num_cached_tokens == 0


@pytest.mark.parametrize("is_aborted", [False, True], ids=["answered", "aborted"])
def test_a_request_pins_its_prompt(is_aborted: bool) -> None:
    """From when it lets go of its blocks, whether it was answered or not."""
    engine, prompt = Engine(num_blocks=20), some_ids(5 * BLOCK, "prompt")
    engine.ask("first", prompt, max_tokens=30, pin=Pin(ttl_s=60.0))
    if is_aborted:
        engine.loop.step()
        engine.loop.step()
        engine.abort("first")
    engine.finish()

    def pass_by(kind: str) -> None:
        for i in range(10):
            engine.answer(f"{kind} {i}", some_ids(10 * BLOCK, (kind, i)))

    pass_by("before")
    engine.loop.now_s = 59.9
    assert engine.answer("pinned", [*prompt, 1]).num_cached_tokens == 5 * BLOCK
    engine.loop.now_s = 60.0
    pass_by("after")
    assert engine.answer("expired", [*prompt, 2]).num_cached_tokens == 0


def evicting_everything(run: Run) -> None:
    plan, memory = run.scheduler.plan, run.scheduler.memory

    def evict_and_plan():
        memory.tree.evict(memory.pool.num_evictable)
        return plan()

    run.scheduler.plan = evict_and_plan


def losing_lookups(run: Run) -> None:
    """A lookup finds only some of what is there, or nothing."""
    tree, source = run.scheduler.memory.tree, random.Random(3)
    match = tree.match
    tree.match = lambda namespace, ids, max_tokens: match(namespace, ids, source.randint(0, max_tokens))


def preempting(run: Run) -> None:
    plan, source = run.scheduler.plan, random.Random(3)

    def preempt_and_plan():
        for request in list(run.scheduler.running):
            if source.random() < 0.2:
                run.scheduler.preempt(request)
        return plan()

    run.scheduler.plan = preempt_and_plan


@pytest.mark.parametrize("fault", [evicting_everything, losing_lookups, preempting])
@pytest.mark.parametrize("guess_rate", [None, 0.5])
@pytest.mark.parametrize("num_blocks", [16, 64])
def test_evictions_lost_lookups_and_preemptions_change_nothing(
    fault, guess_rate: float | None, num_blocks: int
) -> None:
    """kv-02."""
    source = random.Random(5)
    cases = [
        Case(
            num_prompt=source.randint(5, 40),
            num_answer=9,
            max_tokens=source.randint(1, 20),
            arrives_at=i // 2,
            abort_at=i // 2 + source.randint(0, 30) if i % 5 == 0 else None,
            stops=False,
            family=i % 3,
            num_family=source.choice([3, 8, 20, 39]),
        )
        for i in range(60)
    ]
    run = Run(Trace(cases, num_blocks=num_blocks, guess_rate=guess_rate, max_num_seqs=6))
    fault(run)
    check_results(run.run())


def test_common_beginnings_are_found_whatever_else_happens() -> None:
    """The trace that the faults above go through reuses a lot without them; else they would show nothing."""
    cases = [
        Case(num_prompt=30 + i % 9, num_answer=9, max_tokens=9, arrives_at=i, stops=False, family=0, num_family=26)
        for i in range(40)
    ]
    run = Run(Trace(cases, num_blocks=200, max_num_seqs=6)).run()
    check_results(run)
    assert run.loop.num_copies >= 30
    assert run.scheduler.memory.counts.num_hit == 39 * 26
