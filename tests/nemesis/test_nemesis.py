"""The nemesis, briefly by default and for long in the slow tests; and its checker, which must see what it is for."""

import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from history import Record, Truth, num_cancelled, problems
from traffic import NORMAL, Job, Mix, jobs, scripted_ids

from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.engine.ledger import Ledger
from freehold.engine.remote import ProcessEngine
from freehold.files.tensors import DType
from freehold.protocol import Finish, Generate, RequestId, Sampling, Tokens
from freehold.synth import SynthConfig, write_checkpoint
from nemesis import Outcome, storm, strike

TIMEOUT_S = 300.0
TINY = SynthConfig(
    family="qwen3", hidden_size=64, intermediate_size=160, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16,
    vocab_size=320,
)  # fmt: skip


def check(outcome: Outcome) -> None:
    print(outcome.summary)
    assert not outcome.problems, f"{outcome.summary}\n" + "\n".join(outcome.problems[:20])


@pytest.mark.parametrize("seed", [1])
def test_a_storm_of_cancellations_and_kills(seed: int) -> None:
    outcome = storm(seed, num_cancellations=400, num_kills=3)
    check(outcome)
    assert outcome.num_kills == 3
    assert num_cancelled(outcome.history) >= 400


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_ten_thousand_cancellations_and_twenty_kills(seed: int) -> None:
    outcome = storm(seed, num_cancellations=10_000, num_kills=20)
    check(outcome)
    assert outcome.num_kills == 20
    assert num_cancelled(outcome.history) >= 10_000


@pytest.mark.slow
def test_ten_thousand_cancellations_in_one_life() -> None:
    """No kill brings a clean start: what is left behind adds up."""
    outcome = storm(4, num_cancellations=10_000, num_kills=0)
    check(outcome)
    assert num_cancelled(outcome.history) >= 10_000


def free_run(config: EngineConfig, all_jobs: list[Job]) -> dict[RequestId, Record]:
    """What the jobs answer if nobody cancels, kills or is late."""
    records = {job.generate.request_id: Record(job) for job in all_jobs}
    ended = threading.Semaphore(0)
    with Engine.start(config) as engine:
        for record in records.values():
            generate = record.job.generate

            def take(event: Tokens | Finish, record: Record = record) -> None:
                record.take(event)
                if isinstance(event, Finish):
                    ended.release()

            unhurried = Generate(
                request_id=generate.request_id, prompt_ids=generate.prompt_ids, sampling=generate.sampling, digests=True
            )
            engine.submit(unhurried, take)  # type: ignore[arg-type]
        for _ in records:
            assert ended.acquire(timeout=TIMEOUT_S)
    return records


def real_storm(folder: Path, seed: int, num_jobs: int, num_kills: int) -> Outcome:
    """On a real, tiny model: survivors' ids and digests are those of a run without faults."""
    path = folder / "tiny.gguf"
    write_checkpoint(TINY, path, format="gguf", dtype=DType.Q8_0)
    config = EngineConfig(
        model_path=path, kv_cache_bytes=1 << 17, max_model_len=208, max_num_seqs=8, max_num_batched_tokens=64,
        block_size=16,
    )  # fmt: skip
    all_jobs = list(islice(jobs(seed, Mix(vocab_size=300, is_scripted=False)), num_jobs))
    free = free_run(config, all_jobs)
    truth = Truth(
        lambda generate: free[generate.request_id].token_ids,
        {name: record.digests for name, record in free.items()},
        allowed=frozenset({"engine_died"}),
    )
    with ProcessEngine.start(config) as engine:
        return strike(engine, seed, iter(all_jobs), truth, num_jobs // 4, num_kills)  # a third is cancelled


def test_survivors_of_a_real_model_have_the_tokens_of_a_run_without_faults(tmp_path: Path) -> None:
    check(real_storm(tmp_path, 5, 250, 1))


@pytest.mark.slow
def test_survivors_of_a_real_model_in_a_long_storm(tmp_path: Path) -> None:
    outcome = real_storm(tmp_path, 6, 6000, 10)
    check(outcome)
    assert outcome.num_kills == 10


# ---------------------------------------------------------------------- the checker


def good(name: str = "a") -> Record:
    generate = Generate(
        request_id=RequestId(name), prompt_ids=(NORMAL, 1, 2), sampling=Sampling(max_tokens=3), digests=True
    )
    record = Record(Job(generate))
    record.take(Tokens(request_id=generate.request_id, token_ids=tuple(scripted_ids(generate)), digests=(1, 2, 3)))
    record.take(Finish(request_id=generate.request_id, reason="length", num_prompt_tokens=3, num_output_tokens=3))
    return record


LEDGER = Ledger(received=1, accepted=1, finished=1, published_ids=3, ended_ids=3)


def lose_the_end(record: Record) -> None:
    record.finish = None


def end_twice(record: Record) -> None:
    assert record.finish is not None
    record.take(record.finish)


def lose_an_id(record: Record) -> None:
    del record.token_ids[1]


def swap_ids(record: Record) -> None:
    record.token_ids.reverse()


def lose_a_digest(record: Record) -> None:
    record.digests.pop()


def drift(record: Record) -> None:
    record.digests[1] += 1


def cancel_unasked(record: Record) -> None:
    record.finish = Finish(request_id=RequestId("a"), reason="cancelled", num_prompt_tokens=3, num_output_tokens=3)


def fail_unstruck(record: Record) -> None:
    record.finish = Finish(
        request_id=RequestId("a"), reason="failed", num_prompt_tokens=3, num_output_tokens=3, code="numeric_error"
    )


def miscount(record: Record) -> None:
    record.finish = Finish(request_id=RequestId("a"), reason="length", num_prompt_tokens=4, num_output_tokens=3)


def refuse_and_answer(record: Record) -> None:
    record.refusal = "engine_restarting"


TRUTH = Truth(scripted_ids, {RequestId("a"): (1, 2, 3)})


def test_the_checker_accepts_what_is_right() -> None:
    assert problems([good()], TRUTH, LEDGER) == []


@pytest.mark.parametrize(
    "plant",
    [
        lose_the_end,
        end_twice,
        lose_an_id,
        swap_ids,
        lose_a_digest,
        drift,
        cancel_unasked,
        fail_unstruck,
        miscount,
        refuse_and_answer,
    ],
)
def test_the_checker_sees(plant: Callable[[Record], None]) -> None:
    record = good()
    plant(record)
    assert problems([record], TRUTH, LEDGER)


def test_the_checker_compares_the_ledger() -> None:
    assert problems([good()], TRUTH, Ledger(received=1, accepted=1, cancelled=1, published_ids=3, ended_ids=3))
    assert problems([good(), good("b")], TRUTH, LEDGER)


def test_the_checker_sees_cancellations_that_change_nothing() -> None:
    history = []
    for i in range(4):
        generate = Generate(
            request_id=RequestId(str(i)), prompt_ids=(NORMAL, i), sampling=Sampling(max_tokens=20), digests=True
        )
        history.append(Record(Job(generate, "at once"), is_cancelled=True))
        history[-1].take(
            Tokens(request_id=generate.request_id, token_ids=tuple(scripted_ids(generate)), digests=(1,) * 20)
        )
        history[-1].take(
            Finish(request_id=generate.request_id, reason="length", num_prompt_tokens=2, num_output_tokens=20)
        )
    ledger = Ledger(received=4, accepted=4, finished=4, published_ids=80, ended_ids=80)
    assert problems(history, Truth(scripted_ids), ledger) == ["4 of 4 requests went on after they were cancelled"]


def test_traffic_depends_on_its_seed_alone() -> None:
    first, again, other = (list(islice(jobs(seed, Mix()), 500)) for seed in (1, 1, 2))
    assert first == again != other
    assert {job.cancel for job in first} == {None, "at once", "after some ids", "before the last id", "after a while"}
    assert {job.generate.service for job in first} == {"interactive", "agent", "batch"}
    assert any(job.generate.family for job in first)
