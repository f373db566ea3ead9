"""Law 1 at the step contract: a request's ids, and the digests of its logits, depend on the request alone."""

import dataclasses
import itertools

import numpy as np
import pytest
from driver import GREEDY, Driver, Request
from kinds import CPU, INT8_KV, KINDS, REFERENCE, Kind
from msgspec import structs
from tiny_models import VOCAB_SIZE, token_ids

from freehold.backends.base import FedBy, Row, RowSampling, StepError
from freehold.sample.digest import digest_logits
from freehold.sample.sampler import sample

MODELS = [("llama-llama3-rope", "Q4_0"), ("qwen2-window", "hf"), ("qwen3", "F16")]
CASES = [(MODELS[1], REFERENCE[0]), (MODELS[0], REFERENCE[1]), *itertools.product(MODELS, [*CPU, INT8_KV[0]])]
SEEDED = RowSampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=7, choice=0)
FILTERED = RowSampling(temperature=0.8, top_k=40, top_p=0.9, min_p=0.01, seed=2**63 + 9, choice=3)
SAMPLINGS = [GREEDY, SEEDED, FILTERED]
FILTERS = [  # temperature, top_k, top_p, min_p
    (0.0, 0, 1.0, 0.0),
    (1.0, 0, 1.0, 0.0),
    (0.7, 5, 1.0, 0.0),
    (1.5, 0, 0.5, 0.0),
    (1.0, 0, 1.0, 0.3),
    (2.0, 50, 0.95, 0.02),
    (1.0, 0, 0.0, 0.0),
    (1.0, 1, 1.0, 1.0),
    (1e-3, 0, 0.99, 0.0),
    (1.0, 10**6, 1.0, 0.0),
]
LENGTHS = [1, 15, 16, 17, 40, 63, 64, 65, 90]
BLOCKS_EACH = 8


def case_id(case) -> str:
    return f"{'-'.join(case[0])}-{case[1]}"


@pytest.fixture(params=CASES, ids=case_id)
def driver(request, tiny, open_kind) -> Driver:
    model, kind = request.param
    return Driver(open_kind(tiny(*model).path, kind))


def blocks(index: int) -> range:
    return range(index * BLOCKS_EACH, (index + 1) * BLOCKS_EACH)


def requests() -> list[Request]:
    """Nine requests of different lengths and samplings, in blocks of their own."""
    return [
        Request(token_ids(length, seed=index), blocks(index), SAMPLINGS[index % 3])
        for index, length in enumerate(LENGTHS)
    ]


def test_alone_and_among_eight_neighbours(driver: Driver) -> None:
    together = driver.answer(requests(), chunk_size=32)
    for request, answer in zip(requests(), together, strict=True):
        assert driver.answer([request], chunk_size=32) == [answer]
    assert len({tuple(answer.token_ids) for answer in together}) > 3  # the answers do differ


def test_chunk_sizes(driver: Driver) -> None:  # cp-01
    whole = driver.answer(requests()[:9:2], chunk_size=1000)
    for chunk_size in (1, 7, 16, 17, 64):
        assert driver.answer(requests()[:9:2], chunk_size=chunk_size) == whole


def test_block_tables(driver: Driver) -> None:
    """Which blocks hold a request's keys and values doesn't matter, nor what they held before."""
    in_order = driver.answer(requests()[6:], chunk_size=50)
    shuffled = np.random.default_rng(0).permutation(96)
    moved = [
        dataclasses.replace(request, blocks=shuffled[index * BLOCKS_EACH :][:BLOCKS_EACH].tolist())
        for index, request in enumerate(requests()[6:])
    ]
    assert driver.answer(moved, chunk_size=50) == in_order


def test_fed_rows_equal_known_ids(driver: Driver) -> None:
    assert driver.answer(requests(), chunk_size=64, fed=True) == driver.answer(requests(), chunk_size=64, fed=False)


def test_verifying_drafts_equals_one_by_one(driver: Driver) -> None:
    """With k drafts of which the first j are right, j + 1 ids come back, those of sequential decoding."""
    for request in requests()[3:6]:
        (plain,) = driver.answer([request], chunk_size=64)
        for num_right in (0, 1, 4, 5):
            driver.forced(request.prompt[:-1], request.blocks)
            drafts = plain.token_ids[:5]
            if num_right < 5:
                drafts[num_right] = (drafts[num_right] + 1) % VOCAB_SIZE
            row = Row(
                start_pos=len(request.prompt) - 1,
                token_ids=[request.prompt[-1], *drafts],
                block_ids=np.array(request.blocks, np.int32),
                num_sampled=6,
                sampling=request.sampling,
                want_digests=True,
            )
            (result,) = driver.run(row)
            assert list(result.token_ids) == plain.token_ids[: num_right + 1]
            assert list(result.digests) == plain.digests[: num_right + 1]


def test_a_row_is_fed_the_last_id_that_a_verification_gave(driver: Driver) -> None:
    request = requests()[4]
    (plain,) = driver.answer([request], chunk_size=64)
    driver.forced(request.prompt[:-1], request.blocks)
    first = structs.replace(
        _decode_row(request, len(request.prompt) - 1, [request.prompt[-1], *plain.token_ids[:2]]), num_sampled=3
    )
    step = driver.submit([first])
    after = driver.submit([_decode_row(request, len(request.prompt) + 2, [], FedBy(step, 0))])
    assert list(driver.backend.collect(step).rows[0].token_ids) == plain.token_ids[:3]
    assert list(driver.backend.collect(after).rows[0].token_ids) == plain.token_ids[3:4]


def _decode_row(request: Request, start_pos: int, ids: list[int], fed_by: FedBy | None = None) -> Row:
    return Row(start_pos, ids, np.array(request.blocks, np.int32), 1, request.sampling, fed_by)


def test_ids_and_digests_are_those_of_the_reported_logits(driver: Driver) -> None:
    """The numpy sampler and digest, applied to the backend's own logits, give its ids and digests."""
    prompt = token_ids(20)
    driver.forced(prompt[:-1], blocks(0))
    for seed, (temperature, top_k, top_p, min_p) in enumerate(FILTERS * 8):
        sampling = RowSampling(
            temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed * 10**17, choice=seed % 3
        )
        row = Row(19, prompt[-1:], np.array(blocks(0), np.int32), 1, sampling, want_digests=True, want_logits=True)
        (result,) = driver.run(row)
        assert list(result.token_ids) == [sample(result.logits[-1], sampling, pos=20)]
        assert list(result.digests) == [digest_logits(result.logits[-1])]


def test_asking_for_logits_changes_nothing(driver: Driver) -> None:
    request = requests()[5]
    (plain,) = driver.answer([request], chunk_size=1000)
    forced = driver.forced([*request.prompt, *plain.token_ids], request.blocks)
    behind = forced[len(request.prompt) - 1 : -1]
    assert [digest_logits(row) for row in behind] == plain.digests


def test_masks(driver: Driver) -> None:
    """Deferred rows sample what their mask allows; others of the step and full masks are not touched."""
    request = requests()[7]
    row = structs.replace(_decode_row(request, 0, list(request.prompt)), want_logits=True)
    (plain,) = driver.run(row)
    full = np.full((VOCAB_SIZE + 31) // 32, 0xFFFFFFFF, dtype=np.uint32)
    allowed = full.copy()
    for token_id in (plain.token_ids[0], 258, 257, 256):
        allowed[token_id // 32] &= ~np.uint32(1 << (token_id % 32))
    deferred = structs.replace(row, deferred=True)
    step = driver.submit([row, deferred, deferred])
    driver.backend.sample(step, {1: full[np.newaxis], 2: allowed[np.newaxis]})
    after = driver.submit([_decode_row(request, len(request.prompt), [], FedBy(step, 2))])
    results = driver.backend.collect(step).rows
    assert [result.token_ids[0] for result in results[:2]] == [plain.token_ids[0]] * 2
    expected = sample(plain.logits[-1], request.sampling, pos=len(request.prompt), allowed=allowed)
    assert list(results[2].token_ids) == [expected]
    (known,) = driver.backend.collect(after).rows
    assert [known] == driver.run(_decode_row(request, len(request.prompt), [expected]))


def test_copied_and_restored_blocks_hold_the_same(driver: Driver) -> None:
    request = requests()[8]
    (plain,) = driver.answer([request], chunk_size=64)
    driver.forced(request.prompt[:-1], request.blocks)
    used = list(request.blocks)[: len(request.prompt) // 16 + 1]
    saved = [driver.backend.read_block(block) for block in used]
    elsewhere = list(blocks(0))
    driver.backend.copy_blocks(list(zip(used, elsewhere, strict=False)))
    copied = [driver.backend.read_block(block) for block in elsewhere[: len(used)]]
    assert copied == saved
    last = len(request.prompt) - 1
    for target in (elsewhere, list(blocks(1))):
        if target is not elsewhere:
            for block, data in zip(target, saved, strict=False):
                driver.backend.write_block(block, data)
        moved = dataclasses.replace(request, blocks=target)
        row = structs.replace(_decode_row(moved, last, [request.prompt[-1]]), want_digests=True)
        (result,) = driver.run(row)
        assert (result.token_ids[0], result.digests[0]) == (plain.token_ids[0], plain.digests[0])


def test_numbers_that_are_not_finite_fail_their_row_alone(driver: Driver) -> None:
    healthy, sick = requests()[4], requests()[5]
    (plain,) = driver.answer([healthy], chunk_size=64)
    driver.forced(healthy.prompt[:-1], healthy.blocks)
    driver.forced(sick.prompt[:-1], sick.blocks)
    for block in list(sick.blocks)[:3]:
        driver.backend.write_block(block, b"\xff" * len(driver.backend.read_block(block)))  # NaN in any float type
    rows = [_decode_row(r, len(r.prompt) - 1, [r.prompt[-1]]) for r in (sick, healthy)]
    step = driver.submit(rows)
    after = driver.submit(
        [_decode_row(r, len(r.prompt), [], FedBy(step, row)) for row, r in enumerate((sick, healthy))]
    )
    for step_id, expected in ((step, plain.token_ids[0]), (after, plain.token_ids[1])):
        ill, well = driver.backend.collect(step_id).rows
        assert not ill.finite
        assert well.finite
        assert list(well.token_ids) == [expected]
    # nothing of it stays behind
    assert driver.answer([sick], chunk_size=64)[0].token_ids


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_block_size_and_threads(case, tiny, open_kind) -> None:
    model, kind = case
    answers = []
    for block_size, num_threads in ((16, 1), (32, 2), (64, 3)):
        backend = open_kind(tiny(*model).path, kind, block_size=block_size, num_threads=num_threads)
        answers.append(Driver(backend).answer(requests()[4:], chunk_size=64))
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("kind", REFERENCE, ids=str)
def test_a_failing_step_fails_alone(kind: Kind, tiny, open_kind, monkeypatch) -> None:
    backend = open_kind(tiny(*MODELS[0]).path, kind)
    driver, request = Driver(backend), requests()[4]
    (plain,) = driver.answer([request], chunk_size=64)
    with monkeypatch.context() as patch:
        patch.setattr(backend, "_forward", lambda *_: 1 / 0)
        step = driver.submit([_decode_row(request, 0, list(request.prompt))])
        with pytest.raises(StepError, match="division by zero"):
            backend.collect(step)
    assert driver.answer([request], chunk_size=64) == [plain]


@pytest.mark.parametrize(
    "change",
    [
        {"token_ids": [-1]},
        {"token_ids": [VOCAB_SIZE]},
        {"start_pos": -1},
        {"start_pos": 128},
        {"block_ids": np.array([-1], np.int32)},
        {"block_ids": np.array([96], np.int32)},
        {"num_sampled": 2},
        {"sampling": None},
    ],
    ids=str,
)
def test_reference_refuses_malformed_rows(change, tiny, open_kind) -> None:
    """numpy would read a negative index from the end without a word."""
    driver = Driver(open_kind(tiny(*MODELS[0]).path, KINDS[0]))
    row = Row(0, [5], np.array(blocks(0), np.int32), 1, GREEDY)
    driver.run(row)
    with pytest.raises(ValueError, match=r"token|position|block|num_sampled"):
        driver.run(structs.replace(row, **change))
