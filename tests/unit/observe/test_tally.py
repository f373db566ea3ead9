"""The arithmetic of profiles: shares of time, limits, groups."""

import random

import msgspec
import pytest
from made_up import LIMITS, MS, PHASES, numbers, profile, step

from freehold.observe import render
from freehold.observe.profile import Peak
from freehold.observe.report import BETWEEN, WAITING, PhaseRow, StepGroup
from freehold.observe.tally import Tally


def rows(group: StepGroup) -> dict[str, PhaseRow]:
    return {row.phase: row for row in group.phases}


def only_group(*steps, **changes) -> StepGroup:
    (group,) = Tally(profile(*steps, **changes)).report().groups
    return group


def test_a_phase_that_reads_is_held_against_memory() -> None:
    """4 MB at 1 GB/s take 4 ms; both threads were busy for 5 ms."""
    row = rows(only_group(step(0, 10, 1, 1, [1, 10, 3], qkv=(4e6, 0.0, 8e6))))["qkv"]
    assert row.bound == "memory"
    assert row.step_s == pytest.approx(0.005)
    assert row.share == pytest.approx(0.5)
    assert row.limit_share == pytest.approx(0.8)
    assert row.bytes_per_s == pytest.approx(0.8e9)
    assert row.operations_per_s == pytest.approx(1.6e9)


def test_a_phase_that_computes_is_held_against_its_formats_peak() -> None:
    found = rows(only_group(step(0, 10, 1, 64, [1, 8, 8], qkv=(1e6, 0.0, 8e6), attention=(0.0, 1e6, 4e6))))
    assert (found["qkv"].bound, found["qkv"].limit_share) == ("arithmetic", pytest.approx(2 / 4))
    assert (found["attention"].bound, found["attention"].limit_share) == ("arithmetic", pytest.approx(2 / 4))


def test_a_phase_without_counted_work_has_no_limit() -> None:
    row = rows(only_group(step(0, 10, 1, 1, [4, 10, 3])))["norm"]
    assert (row.bound, row.limit_share) == (None, None)
    assert row.share == pytest.approx(0.2)


def test_the_limit_is_judged_step_by_step() -> None:
    """One step is bound by memory, the other by arithmetic: the sum's limit is more than the limit of the sums."""
    reads = step(0, 10, 65, 65, [0, 20, 0], qkv=(4e6, 0.0, 0.0))
    computes = step(10, 20, 66, 66, [0, 20, 0], qkv=(0.0, 0.0, 16e6))
    group = only_group(reads, computes)
    assert rows(group)["qkv"].limit_share == pytest.approx((4 + 4) / 20)
    assert group.limit_share == pytest.approx(8 / 20)


def test_what_is_left_is_waiting_and_between_steps() -> None:
    first = step(0, 10, 1, 1, [2, 8, 4])
    second = step(12, 22, 1, 1, [2, 8, 4])
    found = rows(only_group(first, second))
    assert found[WAITING].share == pytest.approx(12 / 44)
    assert found[BETWEEN].share == pytest.approx(4 / 44)
    assert found[BETWEEN].step_s == pytest.approx(0.001)


def test_idle_time_is_no_time_between_steps() -> None:
    """Idle from 10.5 to 110 ms, and from 121 ms to the end."""
    steps = [step(0, 10, 1, 1, [2, 8, 4]), step(111, 121, 1, 1, [2, 8, 4])]
    beats = numbers((0, 0), (2, 10_500_000), (0, 110 * MS), (1, 112 * MS), (2, 121 * MS))
    report = Tally(profile(*steps, beats=beats, end_ns=131 * MS)).report()
    assert report.summary.between_s == pytest.approx(0.0015)
    assert report.summary.idle_s == pytest.approx(0.0995 + 0.010)
    assert report.summary.tokens_per_s == pytest.approx(2 / 0.0215)


def test_shares_sum_to_one_and_steps_to_the_whole() -> None:
    random.seed(4)
    tally = None
    num_steps = 0
    for _ in range(3):
        at, steps = 0.0, []
        for _ in range(200):
            start = at + random.choice([0, 0.2, 3])
            at = start + random.uniform(1, 20)
            num_rows = random.randint(1, 70)
            tokens = num_rows if random.random() < 0.6 else num_rows + random.randint(1, 400)
            busy = [random.uniform(0, (at - start) * 2 / 3) for _ in PHASES]
            steps.append(step(start, at, num_rows, tokens, busy, qkv=(5e5, 0.0, 1e5 * tokens)))
        num_steps += len(steps)
        if tally is None:
            tally = Tally(profile(*steps))
        else:
            tally.add(profile(*steps))
    assert tally is not None
    report = tally.report()
    assert sum(group.num_steps for group in report.groups) == report.summary.num_steps == num_steps
    assert len(report.groups) < 20
    for group in report.groups:
        assert sum(row.share for row in group.phases) == pytest.approx(1.0)
        assert sum(row.step_s for row in group.phases) == pytest.approx(group.step_s)
        assert all(row.share >= 0 for row in group.phases)
        assert group.max_tokens < 2 * max(1, group.min_tokens)
    total_s = report.summary.steps_s + report.summary.between_s
    assert sum(group.step_s * group.num_steps for group in report.groups) == pytest.approx(total_s)
    assert f"{num_steps} steps" in render.text(report)


def test_kinds_of_steps_are_kept_apart() -> None:
    """One token a request or more: a chunk of a prompt beside 3 others is prefill, though small."""
    steps = [
        step(i, i + 1, rows, tokens, [1, 0, 0]) for i, (rows, tokens) in enumerate([(4, 4), (4, 6), (3, 3), (1, 1)])
    ]
    groups = Tally(profile(*steps)).report().groups
    assert [(g.kind, g.min_tokens, g.max_tokens) for g in groups] == [
        ("decode", 1, 1),
        ("decode", 3, 4),
        ("prefill", 6, 6),
    ]


def test_failed_steps_are_left_out_and_told() -> None:
    report = Tally(profile(step(0, 10, 1, 1, [2, 8, 4]), step(12, 12, 1, 1, [5, 0, 0]))).report()
    assert report.summary.num_steps == 1
    assert report.missing.failed_steps == 1
    assert "1 steps failed" in render.text(report)


def test_no_step_is_said() -> None:
    report = Tally(profile(beats=numbers((2, 0)), end_ns=2_000_000_000)).report()
    assert report.groups == ()
    text = render.text(report)
    assert text.startswith("No step ran. The engine was idle for 2.00 s.")
    assert "97 s before: reading memory at 1.0 GB/s, 4 Gop/s of int8 in linear layers, 2 Gop/s of bf16" in text


def test_what_found_no_room_is_said() -> None:
    found = profile(step(0, 10, 1, 1, [2, 8, 4]), num_skipped_steps=7, num_lost_spans=8, num_lost_beats=9)
    text = render.text(Tally(found).report())
    for number in (7, 8, 9):
        assert f"Missing: {number} " in text


def test_limits_that_were_disturbed_are_said() -> None:
    steady = profile(step(0, 10, 1, 1, [2, 8, 4]))
    disturbed = msgspec.structs.replace(steady, limits=msgspec.structs.replace(LIMITS, linear=Peak("int8", 4e9, False)))
    texts = [render.text(Tally(found).report()) for found in (steady, disturbed)]
    assert ["something else ran" in text for text in texts] == [False, True]
