"""Batches that go on where they were broken off."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests import processes
from tests.processes import Started

from freehold import LLM, Completion, SamplingParams
from freehold.backends.script import NotFinite, Scripts
from freehold.config import EngineConfig
from freehold.engine.client import Engine
from freehold.errors import JournalError
from freehold.files.vocabulary import TextAssets

PROMPTS = [[100 + n, 7, 8] for n in range(20)]
PARAMS = SamplingParams(max_tokens=3, n=2, logprobs=2, prompt_logprobs=1, stop=["never"], logit_bias={5: 1.0})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def run(llm: LLM, path: Path, prompts: Any = PROMPTS, params: Any = PARAMS, **options: Any) -> list[Completion]:
    return list(llm.generate_each(prompts, params, journal=path, in_order=True, **options))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_second_run_computes_nothing(llm: LLM, engine: Engine, path: Path) -> None:
    first = run(llm, path, digests=True)
    received = engine.ledger().received
    assert received == len(first) == 40
    assert all(len(c.logprobs) == len(c.digests) == len(c.token_ids) == 3 for c in first)
    content = path.read_bytes()
    assert run(llm, path, digests=True) == first
    assert sorted(llm.generate(PROMPTS, PARAMS, journal=path, digests=True), key=lambda c: c.prompt_index) == first
    assert engine.ledger().received == received
    assert path.read_bytes() == content


def test_what_is_missing_is_computed(llm: LLM, engine: Engine, path: Path) -> None:
    whole = run(llm, path)
    kept = path.read_bytes().splitlines(keepends=True)[:11]
    path.write_bytes(b"".join(kept))
    received = engine.ledger().received
    again = run(llm, path)
    assert engine.ledger().received - received == 40 - 9, "9 completions after the header and the parameters"
    assert [c.token_ids for c in again] == [c.token_ids for c in whole]
    assert len(lines(path)) == 42


def test_generate_goes_on_too(llm: LLM, engine: Engine, path: Path) -> None:
    run(llm, path, PROMPTS[:5])
    received = engine.ledger().received
    completions = llm.generate(PROMPTS, PARAMS, journal=path)
    assert [(c.prompt_index, c.choice) for c in completions] == [(i, j) for i in range(20) for j in range(2)]
    assert engine.ledger().received - received == 30


@pytest.mark.parametrize("num_bytes", [1, 2, 50, 200])
def test_a_torn_last_line_is_repaired(llm: LLM, engine: Engine, path: Path, num_bytes: int) -> None:
    whole = run(llm, path)
    os.truncate(path, path.stat().st_size - num_bytes)
    received = engine.ledger().received
    assert [c.token_ids for c in run(llm, path)] == [c.token_ids for c in whole]
    assert engine.ledger().received - received == 1
    assert len(lines(path)) == 42


@pytest.mark.parametrize("num_bytes", [0, 1, 20, 60])
def test_a_torn_first_line_is_repaired(llm: LLM, path: Path, num_bytes: int) -> None:
    run(llm, path)
    os.truncate(path, num_bytes)
    run(llm, path)
    assert len(lines(path)) == 42


@pytest.mark.parametrize("damage", [b"\n", b"{}\n", b"\xff\xff\n", b'{"kind":"completion"}\n', b"torn {\n"])
def test_damage_within_is_named_and_nothing_is_changed(llm: LLM, path: Path, damage: bytes) -> None:
    run(llm, path)
    all_lines = path.read_bytes().splitlines(keepends=True)
    all_lines[6] = damage
    path.write_bytes(b"".join(all_lines))
    with pytest.raises(JournalError, match=r"line 7 of .* is damaged"):
        run(llm, path)
    assert path.read_bytes() == b"".join(all_lines)


@pytest.mark.parametrize("content", [b"x", b"{}\n", b"\n", b'{"text": "mine"}\n{"text": "too"}\n', b"\x00" * 100])
def test_a_file_that_is_no_journal_is_left_alone(llm: LLM, path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(JournalError, match="no journal"):
        llm.generate(PROMPTS, PARAMS, journal=path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        ({"max_tokens": 4}, "max_tokens was 3 and is 4"),
        ({"temperature": 0.5}, "temperature was 1.0 and is 0.5"),
        ({"seed": 7}, "seed was None and is 7"),
        ({"stop": "ever"}, r"stop was \['never'\] and is \['ever'\]"),
        ({"logprobs": None}, "logprobs was 2 and is None"),
        ({"logit_bias": {5: 2}}, "logit_bias was {'5': 1.0} and is {'5': 2.0}"),
    ],
)
def test_other_parameters_are_refused_at_once_by_name(
    llm: LLM, engine: Engine, path: Path, changed: dict[str, Any], differs: str
) -> None:
    run(llm, path)
    received = engine.ledger().received
    fields = {name: getattr(PARAMS, name) for name in PARAMS.__struct_fields__}
    other = SamplingParams(**{**fields, **changed})
    with pytest.raises(JournalError, match=f"other parameters: {differs};"):
        llm.generate_each(PROMPTS, other, journal=path)
    with pytest.raises(JournalError, match="digests was False and is True") as refusal:
        llm.generate_each(PROMPTS, PARAMS, journal=path, digests=True)
    run(llm, path)
    assert refusal.value.__traceback__, "the journal was let go of while the error was still alive"
    assert engine.ledger().received == received


def test_equal_parameters_may_be_spelled_in_other_ways(llm: LLM, engine: Engine, path: Path) -> None:
    run(llm, path, params=SamplingParams(temperature=1, stop="x", stop_token_ids=[9, 5, 9], logit_bias={7: 1, 5: 2}))
    received = engine.ledger().received
    same = SamplingParams(temperature=1.0, stop=["x"], stop_token_ids={5, 9}, logit_bias={5: 2.0, 7: 1.0})
    run(llm, path, params=same)
    assert engine.ledger().received == received


def test_parameters_may_differ_by_prompt(llm: LLM, engine: Engine, path: Path) -> None:
    params = [SamplingParams(max_tokens=1 + n % 3) for n in range(20)]
    first, received = run(llm, path, params=params), engine.ledger().received
    assert run(llm, path, params=params) == first
    assert engine.ledger().received == received
    with pytest.raises(JournalError, match="max_tokens was 1 and is 2"):
        run(llm, path, params=params[1:] + params[:1])


def test_other_prompts_are_refused(llm: LLM, path: Path) -> None:
    run(llm, path)
    with pytest.raises(JournalError, match="another prompt 19"):
        run(llm, path, [*PROMPTS[:19], [5]])


def test_another_model_is_refused_with_what_differs(llm: LLM, text: TextAssets, path: Path) -> None:
    run(llm, path)
    config = EngineConfig(model_path=Path("/nowhere"), backend="scripted", max_model_len=400)
    with (
        LLM.over(Engine.start(config), text) as other,
        pytest.raises(JournalError, match="max_model_len was 500 and is 400;"),
    ):
        other.generate(PROMPTS, PARAMS, journal=path)
    fingerprint = lines(path)[0]["fingerprint"].encode()
    path.write_bytes(path.read_bytes().replace(fingerprint, b"fh-other", 1))
    before = path.read_bytes()
    with pytest.raises(JournalError, match="fingerprint was 'fh-other' and is 'fh-"):
        llm.generate(PROMPTS, PARAMS, journal=path)
    assert path.read_bytes() == before


def test_a_journal_of_a_later_format_is_refused(llm: LLM, path: Path) -> None:
    run(llm, path)
    path.write_bytes(path.read_bytes().replace(b'"format":2', b'"format":3', 1))
    with pytest.raises(JournalError, match="format was 3 and is 2"):
        run(llm, path)


def test_one_run_at_a_time(llm: LLM, path: Path) -> None:
    running = llm.generate_each(PROMPTS, PARAMS, journal=path)
    next(running)
    with pytest.raises(JournalError, match="another run"):
        llm.generate(PROMPTS, PARAMS, journal=path)
    running.close()  # type: ignore[attr-defined]
    llm.generate(PROMPTS, PARAMS, journal=path)


def test_an_iteration_that_never_began_lets_go_of_the_journal(llm: LLM, path: Path) -> None:
    never = llm.generate_each(PROMPTS, PARAMS, journal=path)
    del never
    assert len(llm.generate(PROMPTS, PARAMS, journal=path)) == len(PROMPTS) * PARAMS.n


def test_a_journal_that_cannot_be_opened(llm: LLM, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no" / "folder", tmp_path / "nu\0ll"):
        with pytest.raises(JournalError, match="can't open the journal"):
            llm.generate(PROMPTS, PARAMS, journal=path)


def test_what_never_ends_is_not_read(llm: LLM, tmp_path: Path) -> None:
    """A device gives null bytes for ever, a pipe waits for ever, and a file of gigabytes may hold no line's end."""
    pipe, huge = tmp_path / "pipe", tmp_path / "huge"
    os.mkfifo(pipe)
    huge.touch()
    os.truncate(huge, 1 << 40)
    for path in (Path("/dev/null"), Path("/dev/full"), pipe):
        with pytest.raises(JournalError, match="no regular file"):
            llm.generate(PROMPTS, PARAMS, journal=path)
    with pytest.raises(JournalError, match="no journal"):
        llm.generate(PROMPTS, PARAMS, journal=huge)
    assert huge.stat().st_size == 1 << 40


def test_a_changed_digit_is_damage(llm: LLM, path: Path) -> None:
    """JSON stays JSON, and an id would become another."""
    run(llm, path, PROMPTS[:2])
    whole = path.read_bytes()
    second_line = whole.index(b"\n") + 1
    last_line = whole.rindex(b"\n", 0, -1) + 1
    places = [place for place in range(second_line, last_line) if whole[place : place + 1].isdigit()]
    assert len(places) > 200
    for place in places[::4]:
        path.write_bytes(whole[:place] + b"%d" % ((int(whole[place : place + 1]) + 1) % 10) + whole[place + 1 :])
        with pytest.raises(JournalError, match="is damaged"):
            run(llm, path, PROMPTS[:2])


def test_without_a_line_of_parameters_their_answers_are_computed_again(llm: LLM, engine: Engine, path: Path) -> None:
    """What the message about a damaged line says, also where that line is not an answer."""
    params = [SamplingParams(max_tokens=1 + n % 2) for n in range(6)]
    whole = run(llm, path, PROMPTS[:6], params)
    header, first_params, *rest = path.read_bytes().splitlines(keepends=True)
    assert b'"params"' in first_params
    path.write_bytes(b"".join([header, *rest]))
    for num_computed in (3, 0):
        received = engine.ledger().received
        again = run(llm, path, PROMPTS[:6], params)
        assert [completion.token_ids for completion in again] == [completion.token_ids for completion in whole]
        assert engine.ledger().received - received == num_computed


def test_failures_are_tried_again(llm: LLM, scripts: Scripts, path: Path) -> None:
    scripts.add([5], [6, NotFinite(), 7])
    prompts: list[Any] = [[5], [1 << 20], [8, 9]]
    failed, refused, good = run(llm, path, prompts, SamplingParams(max_tokens=3))
    assert (failed.finish_reason, refused.finish_reason, good.finish_reason) == ("failed", "failed", "length")
    assert len(lines(path)) == 3
    scripts.add([5], [6, 7])
    better, *rest = run(llm, path, prompts, SamplingParams(max_tokens=3))
    assert better.token_ids == (6, 7, 6)
    assert rest == [refused, good]


def test_without_a_seed_what_is_recorded_stays(llm: LLM, path: Path) -> None:
    first = run(llm, path, PROMPTS[:2], SamplingParams(max_tokens=3))
    assert run(llm, path, PROMPTS[:4], SamplingParams(max_tokens=3))[:2] == first


KILLED = """
import sys
from freehold import LLM, SamplingParams

model, path, backend, num_prompts = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
with LLM(model, backend=backend, max_model_len=200, max_num_seqs=8) as llm:
    for completion in llm.generate_each(
        ([100 + n, 200 + n] for n in range(num_prompts)), SamplingParams(max_tokens=8, seed=3), journal=path
    ):
        print(completion.prompt_index, *completion.token_ids, flush=True)
"""


@pytest.mark.parametrize(("backend", "num_prompts"), [("scripted", 2000), ("cpu", 60)])
def test_a_killed_run_goes_on_to_exactly_the_union(
    smollm2_path: Path, path: Path, backend: str, num_prompts: int
) -> None:
    def start(journal: Path) -> Started:
        command = [sys.executable, "-c", KILLED, str(smollm2_path), str(journal), backend, str(num_prompts)]
        return processes.start(command, stdout=subprocess.PIPE, text=True)

    with start(path) as killed:
        end_s = time.monotonic() + 120
        while not path.exists() or len(path.read_bytes().splitlines()) < 2 + num_prompts // 5:
            assert time.monotonic() < end_s
            assert killed.poll() is None
            time.sleep(0.002)
        killed.send_signal(signal.SIGKILL)
        seen, _ = killed.communicate(timeout=120)
    recorded = path.read_bytes()
    assert len(recorded.splitlines()) < 2 + num_prompts, "it was killed in the middle"
    kept = {line.rstrip(b"\n") for line in recorded.splitlines(keepends=True) if line.endswith(b"\n")}
    given = set(seen.rpartition("\n")[0].splitlines())
    with start(path) as resumed:
        after, _ = resumed.communicate(timeout=240)
    with start(path.with_name("other")) as straight:
        expected, _ = straight.communicate(timeout=240)
    assert sorted(after.splitlines()) == sorted(expected.splitlines())
    assert len(set(after.splitlines())) == num_prompts
    assert given <= set(after.splitlines()), "what was given out before is what is given out again"
    assert kept <= set(path.read_bytes().splitlines()), "what was recorded stays"
    assert len(lines(path)) == num_prompts + 2, "nothing was computed twice"
