"""Whole steps: odd shapes and mixed types follow the reference; threads and blocks change no bit; faults stay apart."""

import itertools
import resource
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from models import make_spec, make_weights

from freehold import _native
from freehold.arch.load import Weights
from freehold.arch.sizes import kv_block_bytes
from freehold.arch.spec import ModelSpec, Slot
from freehold.backends import open_backend
from freehold.backends.base import Backend, BackendOptions, FedBy, Row, RowResult, RowSampling, Step, StepError, StepId
from freehold.errors import ConfigError
from freehold.files.tensors import DType

SEEDED = RowSampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=5, choice=0)
SMALL = make_spec(hidden=64, heads=4, kv_heads=2, head_dim=32, mlp=96, vocab=161, windows=(None, 70))
MODELS: dict[str, tuple[ModelSpec, DType, dict[Slot, DType]]] = {
    "plain": (SMALL, DType.Q4_1, {Slot.EMBED: DType.Q8_0}),
    "nothing divides": (
        make_spec(hidden=42, heads=5, kv_heads=1, head_dim=6, mlp=70, vocab=47, rotary_dim=4, tied=False),
        DType.F32,
        {Slot.GATE: DType.F16, Slot.HEAD: DType.BF16},
    ),
    "every kind of matrix": (
        make_spec(hidden=256, heads=4, kv_heads=4, head_dim=64, mlp=512, vocab=100, bias=True, qk_norm=True),
        DType.Q4_K,
        {Slot.V: DType.Q6_K, Slot.O: DType.Q2_K, Slot.UP: DType.IQ4_XS, Slot.K: DType.Q5_0, Slot.EMBED: DType.BF16},
    ),
    "windows": (
        make_spec(hidden=32, heads=3, kv_heads=1, head_dim=24, mlp=64, vocab=64, windows=(5, None, 64, 1)),
        DType.Q8_0,
        {Slot.O: DType.F32},  # 72 inputs
    ),
}


class Runner:
    """Numbers steps of a backend."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.next_step = 0

    def submit(self, *rows: Row) -> StepId:
        step_id = StepId(self.next_step)
        self.next_step += 1
        self.backend.submit(Step(step_id, rows))
        return step_id

    def run(self, *rows: Row) -> Sequence[RowResult]:
        return self.backend.collect(self.submit(*rows)).rows


@pytest.fixture
def open_device():
    opened = []

    def open_one(spec: ModelSpec, weights: Weights, backend: str = "cpu", **options) -> Runner:
        sizes = {"num_blocks": 64, "block_size": 16, "max_rows": 8, "max_tokens": 400}
        opened.append(open_backend(backend, spec, weights, BackendOptions(**sizes | options)))
        return Runner(opened[-1])

    yield open_one
    for backend in opened:
        backend.close()


def prompt(spec: ModelSpec, length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, spec.vocab_size, length).tolist()


def blocks(first: int, count: int, *, shuffled: bool = False) -> np.ndarray:
    ids = np.arange(first, first + count, dtype=np.int32)
    return np.random.default_rng(1).permutation(ids) if shuffled else ids


def forced(runner: Runner, ids: list[int], table: np.ndarray, chunk_size: int) -> np.ndarray:
    parts = []
    for start in range(0, len(ids), chunk_size):
        (result,) = runner.run(Row(start, ids[start : start + chunk_size], table, 0, want_logits=True))
        assert result.finite
        parts.append(result.logits)
    return np.concatenate(parts)


@pytest.mark.parametrize("name", MODELS)
def test_follows_the_reference(isa, open_device, name) -> None:
    spec, dtype, others = MODELS[name]
    weights = make_weights(spec, dtype, others)
    ids, table = prompt(spec, 90), blocks(0, 6)
    expected = forced(open_device(spec, weights, "reference", kv_dtype="f32"), ids, table, 90)
    for kv_dtype, largest, mean in (("f32", 2e-4, 2e-5), ("bf16", 0.2, 0.01), ("int8", 0.2, 0.01)):
        found = forced(open_device(spec, weights, isa=isa, kv_dtype=kv_dtype), ids, table, 90)
        error = np.abs(found - expected) / np.abs(expected).max()
        assert error.max() < largest, kv_dtype
        assert error.mean() < mean, kv_dtype


@pytest.mark.parametrize("name", MODELS)
def test_int8_keys_and_values_are_those_of_the_reference(isa, open_device, name) -> None:
    """Nearly all of what they lose is lost by both."""
    spec, dtype, others = MODELS[name]
    weights = make_weights(spec, dtype, others)
    ids, table = prompt(spec, 90), blocks(0, 6)
    exact = forced(open_device(spec, weights, "reference", kv_dtype="f32"), ids, table, 90)
    expected = forced(open_device(spec, weights, "reference", kv_dtype="int8"), ids, table, 90)
    found = forced(open_device(spec, weights, isa=isa, kv_dtype="int8"), ids, table, 90)
    lost, error = np.abs(expected - exact), np.abs(found - expected)
    assert error.mean() < lost.mean() / 20


@pytest.mark.parametrize(("activations", "kv_dtype"), [("float", "bf16"), ("int8", "bf16"), ("int8", "int8")])
@pytest.mark.parametrize("name", MODELS)
def test_threads_chunks_and_blocks_change_no_bit(isa, open_device, name, activations, kv_dtype) -> None:
    spec, dtype, others = MODELS[name]
    weights = make_weights(spec, dtype, others)
    ids = prompt(spec, 200)
    kind = {"isa": isa, "activations": activations, "kv_dtype": kv_dtype}
    expected = forced(open_device(spec, weights, **kind), ids, blocks(0, 20), 200)
    for num_threads, chunk_size, block_size in ((1, 7, 16), (2, 200, 32), (2, 17, 16), (3, 16, 64), (2, 1, 16)):
        runner = open_device(spec, weights, **kind, num_threads=num_threads, block_size=block_size)
        length = 200 if chunk_size > 1 else 70  # one by one is slow
        table = blocks(3, -(-length // block_size), shuffled=True)
        found = forced(runner, ids[:length], table, chunk_size)
        np.testing.assert_array_equal(found, expected[:length])


@pytest.mark.parametrize("kv_dtype", ["bf16", "int8"])
def test_a_long_context_decodes_alike_with_any_number_of_threads(isa, open_device, kv_dtype) -> None:
    """Threads share out the pieces of a single query's context."""
    spec, dtype, others = MODELS["plain"]
    weights = make_weights(spec, dtype, others)
    answers = []
    for num_threads in (1, 2, 3):
        runner = open_device(spec, weights, isa=isa, kv_dtype=kv_dtype, num_threads=num_threads, block_size=64)
        ids, table = prompt(spec, 700), blocks(0, 12)
        for start in (0, 350):
            runner.run(Row(start, ids[start : start + 350], table, 0))
        fed = runner.submit(Row(699, ids[699:], table, 1, SEEDED, want_digests=True))
        digests = []
        for pos in range(700, 712):
            following = runner.submit(Row(pos, (), table, 1, SEEDED, fed_by=FedBy(fed, 0), want_digests=True))
            (result,) = runner.backend.collect(fed).rows
            digests.append((*result.token_ids, *result.digests))
            fed = following
        answers.append(digests)
    assert answers[0] == answers[1] == answers[2]
    assert len(set(answers[0])) > 6


@pytest.mark.parametrize(("activations", "kv_dtype"), [("float", "bf16"), ("int8", "bf16"), ("int8", "int8")])
def test_a_row_that_is_not_finite_fails_alone(isa, open_device, activations, kv_dtype) -> None:
    spec, dtype, others = MODELS["plain"]
    weights = make_weights(spec, dtype, others | {Slot.EMBED: DType.F32})
    embedding = weights.get(Slot.EMBED).data.view(np.float32).reshape(spec.vocab_size, spec.hidden_size)
    embedding[7, 3] = np.inf
    runner = open_device(spec, weights, isa=isa, activations=activations, kv_dtype=kv_dtype, num_threads=2)

    def row(ids: list[int], first: int) -> Row:
        return Row(0, ids, blocks(first, 2), 1, SEEDED, want_digests=True)

    (alone,) = runner.run(row([1, 2, 3], 0))
    spoilt, healthy = runner.run(row([1, 7, 3], 4), row([1, 2, 3], 8))
    assert not spoilt.finite
    assert not spoilt.token_ids
    assert healthy == alone
    (again,) = runner.run(row([1, 2, 3], 4))  # in the blocks that held the spoilt keys and values
    assert again == alone


@pytest.mark.parametrize(
    ("row", "what"),
    [
        (Row(0, [161], blocks(0, 1), 0), "161"),
        (Row(0, [-1], blocks(0, 1), 0), "-1"),
        (Row(0, [1], blocks(64, 1), 0), "64"),
        (Row(0, [1] * 17, blocks(0, 1), 0), "position 16"),
        (Row(-1, [1], blocks(0, 1), 0), "position 0"),
        (Row(0, [1], blocks(0, 1), 2, SEEDED), "2 samples"),
        (Row(0, [1] * 401, blocks(0, 26), 0), "401"),
        (Row(0, (), blocks(0, 1), 1, SEEDED, fed_by=FedBy(StepId(99), 0)), "step 99"),
    ],
)
def test_a_malformed_step_fails_alone(open_device, row: Row, what: str) -> None:
    runner = open_device(SMALL, make_weights(SMALL, DType.Q8_0))
    good = Row(0, [1, 2], blocks(0, 1), 1, SEEDED)
    before = runner.run(good)
    with pytest.raises(StepError, match=what):
        runner.run(row)
    assert runner.run(good) == before


def test_too_many_rows_fail(open_device) -> None:
    runner = open_device(SMALL, make_weights(SMALL, DType.Q8_0))
    with pytest.raises(StepError, match="9 rows"):
        runner.run(*[Row(0, [1], blocks(index, 1), 0) for index in range(9)])


def test_closing_does_not_wait_for_masks(open_device) -> None:
    runner = open_device(SMALL, make_weights(SMALL, DType.Q8_0), num_threads=2)
    runner.submit(Row(0, [1], blocks(0, 1), 1, SEEDED, deferred=True))
    began_s = time.monotonic()
    runner.backend.close()
    runner.backend.close()
    assert time.monotonic() - began_s < 60


@pytest.mark.parametrize("kv_dtype", ["f32", "bf16", "int8"])
def test_a_block_takes_the_bytes_that_start_up_counts(open_device, kv_dtype) -> None:
    """pl-01, pl-02: of a model whose heads are larger than its width divided by their number."""
    for backend in ("cpu", "reference"):
        runner = open_device(SMALL, make_weights(SMALL, DType.Q8_0), backend, kv_dtype=kv_dtype, block_size=48)
        assert len(runner.backend.read_block(0)) == kv_block_bytes(SMALL, 48, kv_dtype)


def test_sizes_are_reported(open_device) -> None:
    runner = open_device(SMALL, make_weights(SMALL, DType.Q4_1, {Slot.EMBED: DType.Q8_0}), activations="int8")
    integers = "i" if _native.has_integer_scales(runner.backend.numeric_format.isa) else ""
    assert runner.backend.numeric_format.weights == f"q4g32m{integers}+q8g32{integers}"
    assert runner.backend.numeric_format.activations == "int8"
    assert 0 < runner.backend.weight_bytes < 1 << 20
    assert runner.backend.scratch_bytes > 400 * 64 * 4


def test_a_resting_device_touches_some_memory_ahead_of_what_is_in_use(open_device) -> None:
    """A quarter of the blocks, then as much behind those that steps use; the rest stays untouched."""

    def resident_mb() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6

    def rises_to(mb: float) -> None:
        until_s = time.monotonic() + 10
        while resident_mb() < mb - 5:
            assert time.monotonic() < until_s
            time.sleep(0.05)
        time.sleep(0.3)
        assert resident_mb() < mb + 10

    block_mb = kv_block_bytes(SMALL, 16, "bf16") / 1e6
    num_blocks = int(200 / block_mb)
    before_mb = resident_mb()
    runner = open_device(SMALL, make_weights(SMALL, DType.Q8_0), num_blocks=num_blocks)
    rises_to(before_mb + 50)
    runner.run(Row(0, [1], np.array([num_blocks // 4], np.int32), num_sampled=0))
    rises_to(before_mb + 100)
    runner.run(Row(0, [1], np.array([num_blocks - 1], np.int32), num_sampled=0))
    rises_to(before_mb + 100)


def test_unknown_instruction_sets_are_refused(open_device) -> None:
    with pytest.raises(ConfigError, match="mmx"):
        open_device(SMALL, make_weights(SMALL, DType.Q8_0), isa="mmx")


def test_few_and_many_inputs_take_different_ways_to_the_same_bits(open_device) -> None:
    # 2 threads: below 32 inputs they share outputs, above they take blocks of rows, several blocks each
    spec = make_spec(hidden=64, heads=4, kv_heads=2, head_dim=32, mlp=704, vocab=161, windows=(None, 70))
    weights = make_weights(spec, DType.Q4_1, {Slot.EMBED: DType.Q8_0})
    ids = prompt(spec, 397)
    found = {}
    for num_threads, chunk_size in ((1, 397), (2, 397), (2, 31), (2, 32), (2, 1), (3, 200), (3, 47)):
        runner = open_device(spec, weights, num_threads=num_threads, activations="int8")
        found[num_threads, chunk_size] = forced(runner, ids, blocks(0, 32, shuffled=True), chunk_size)
    first = found[1, 397]
    assert all(np.array_equal(first, other) for other in found.values())


@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize(("chunk", "longest"), [(0, 130), (61, 130), (150, 130), (0, 1500)])
def test_blocks_of_rows_go_through_the_layers_by_themselves(
    open_device, num_threads: int, chunk: int, longest: int
) -> None:
    """Many requests far from each other in length, and part of a prompt that is cut at odd places, with and without
    logits of all rows: each row's bits are those of the row alone. One longer than all others together is left to
    all threads."""
    spec = make_spec(hidden=64, heads=4, kv_heads=2, head_dim=32, mlp=160, vocab=161, windows=(None, 70, None))
    weights = make_weights(spec, DType.Q4_0)
    sizes = {"num_blocks": 600, "max_rows": 80, "max_tokens": 1500, "activations": "int8"}
    runner = open_device(spec, weights, num_threads=num_threads, **sizes)
    alone = open_device(spec, weights, num_threads=1, **sizes)
    lengths = [1 + 13 * number % 40 if number % 7 else 130 for number in range(49)]
    tables = [blocks(9 * number, 9) for number in range(49)]
    lengths.append(longest)
    tables.append(blocks(480, 94))
    prompts = [prompt(spec, length, seed) for seed, length in enumerate(lengths)]
    for device in (runner, alone):
        for ids, table in zip(prompts, tables, strict=True):
            if ids[:-1]:
                device.run(Row(0, ids[:-1], table, num_sampled=0))
    rows = [
        Row(len(ids) - 1, ids[-1:], table, 1, replace(SEEDED, seed=seed), want_digests=True)
        for seed, (ids, table) in enumerate(zip(prompts, tables, strict=True))
    ]
    if chunk:
        ids, table = prompt(spec, 7 + chunk, 99), blocks(580, 14)
        for device in (runner, alone):
            device.run(Row(0, ids[:7], table, num_sampled=0))
        rows.insert(33, Row(7, ids[7:], table, 1, SEEDED, want_digests=True))
    together = runner.run(*rows)
    for row, found in zip(rows, together, strict=True):
        (expected,) = alone.run(row)
        assert (found.token_ids, found.digests) == (expected.token_ids, expected.digests)


def test_a_profile_accounts_for_the_threads_time_and_the_steps_work(open_device) -> None:
    spec, quantized, exceptions = MODELS["plain"]
    weights = make_weights(spec, quantized, exceptions)
    runner = open_device(spec, weights, num_threads=2)
    profiler = runner.backend.profiler
    assert profiler is not None
    with pytest.raises(ValueError, match="started"):
        profiler.stop()
    table = blocks(0, 8)
    before_ns = time.monotonic_ns()
    profiler.start(2, 10_000)
    runner.run(Row(0, prompt(spec, 40), table, num_sampled=0))
    runner.run(Row(40, prompt(spec, 1), table, num_sampled=1, sampling=SEEDED))
    runner.run(Row(41, prompt(spec, 1), table, num_sampled=1, sampling=SEEDED))
    found = profiler.stop()
    assert before_ns <= found.start_ns <= time.monotonic_ns()
    assert (found.num_skipped_steps, found.num_lost_spans) == (1, 0)
    assert found.steps[:, 2:].tolist() == [[1, 40], [1, 1]]
    assert found.busy.shape == (2, 2, len(found.phases))
    queries, keys = 128, 64
    work = [dict(zip(found.phases, of_step, strict=True)) for of_step in found.work.tolist()]
    for inputs, of_step, num_logits in zip((40, 1), work, (0, 1), strict=True):
        assert of_step["qkv"][2] == 2 * 2 * spec.hidden_size * (queries + 2 * keys) * inputs
        # the last layer's MLP sees only what needs logits
        assert of_step["down"][2] == 2 * spec.hidden_size * 96 * (inputs + num_logits)
        assert of_step["head"][2] == 2 * spec.hidden_size * spec.vocab_size * num_logits
    assert work[0]["attention"][2] == 4 * queries * sum(range(1, 41))
    assert work[1]["attention"][1] == 2 * 41 * 2 * 2 * 2 * 32  # layers, positions, keys and values, heads, bf16
    spans = found.spans.tolist()
    for index, (start_ns, end_ns, _, _) in enumerate(found.steps.tolist()):
        assert 0 < found.busy[:, index].sum() <= 2 * (end_ns - start_ns)
        seen = {found.phases[phase] for _, phase, _, step, *_ in spans if step == index}
        assert {"norm", "qkv", "place", "attention", "o", "gate_up", "gate", "down"} <= seen
        for thread, phase, layer, step, begin_ns, finish_ns, busy_ns, num_items in spans:
            if step == index:
                assert start_ns <= begin_ns <= begin_ns + busy_ns <= finish_ns <= end_ns
                assert thread in (0, 1)
                assert layer in range(2)
                assert num_items >= 1
                assert found.busy[thread, index, phase] >= busy_ns
    for thread in (0, 1):  # one after the other
        times = [row[4:6] for row in spans if row[0] == thread]
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(times))
    runner.run(Row(42, prompt(spec, 1), table, num_sampled=0))
    with pytest.raises(ValueError, match="started"):
        profiler.stop()


def test_a_profile_keeps_within_its_room(open_device) -> None:
    spec, quantized, exceptions = MODELS["plain"]
    runner = open_device(spec, make_weights(spec, quantized, exceptions), num_threads=2)
    profiler = runner.backend.profiler
    assert profiler is not None
    table = blocks(0, 8)
    for max_spans in (0, 9):
        profiler.start(4, max_spans)
        for pos in range(3):
            runner.run(Row(pos, prompt(spec, 1), table, num_sampled=1, sampling=SEEDED))
        found = profiler.stop()
        assert len(found.steps) == 3
        assert len(found.spans) <= max_spans
        assert (found.num_lost_spans > 0) == (max_spans > 0)
        assert (found.busy.sum(axis=(0, 2)) > 0).all()


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_waiting_for_a_step_is_waiting_for_all_before_it(open_device, backend) -> None:
    """Also where one of them fails, which only `collect` tells."""
    weights = make_weights(SMALL, DType.F32)
    runner = open_device(SMALL, weights, backend, kv_dtype="f32")
    ids, table = prompt(SMALL, 40), blocks(0, 4)
    expected = forced(runner, ids, table, 10)
    steps = [runner.submit(Row(at, ids[at : at + 10], table, 0, want_logits=True)) for at in (0, 10)]
    malformed = runner.submit(Row(0, [0], table, 1, SEEDED, fed_by=FedBy(StepId(999), 0)))
    steps.append(runner.submit(Row(20, ids[20:30], table, 0, want_logits=True)))
    runner.backend.wait(steps[-1])
    found = [runner.backend.collect(step).rows[0].logits for step in steps[:2]]
    with pytest.raises(Exception, match="999"):
        runner.backend.collect(malformed)
    found.append(runner.backend.collect(steps[2]).rows[0].logits)
    assert np.array_equal(np.concatenate(found), expected[:30])
