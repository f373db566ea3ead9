"""Profiles of the real model in this process."""

import json
from pathlib import Path

import pytest
from tests.traces import check_trace

from freehold import LLM, SamplingParams
from freehold.errors import EngineError

LINEAR = {"qkv", "o", "gate_up", "down", "head"}


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path):
    with LLM(smollm2_path, max_num_seqs=8) as llm:
        yield llm


def test_a_profile_accounts_for_a_generation(smollm2: LLM, tmp_path: Path) -> None:
    with smollm2.profile() as profile:
        smollm2.generate([[1, 2, 3] * 20, [4, 5, 6] * 20], SamplingParams(max_tokens=6, temperature=0, ignore_eos=True))
    report = profile.report
    assert {group.kind for group in report.groups} == {"decode", "prefill"}
    assert report.summary.num_tokens == 2 * (60 + 5)
    for group in report.groups:
        phases = {row.phase: row for row in group.phases}
        assert all(phases[name].step_s > 0 for name in LINEAR | {"attention", "norm", "gate"})
        assert {name for name, row in phases.items() if row.step_bytes} == LINEAR | {"attention"}
        assert sum(row.share for row in group.phases) == pytest.approx(1.0)
        assert 0 < group.limit_share < 1.2
        # Every weight is read once a step: some 100 MB.
        assert 80e6 < sum(phases[name].step_bytes for name in LINEAR) < 120e6
    assert report.missing.lost_spans == 0
    assert "attention" in profile.table()
    profile.save_trace(tmp_path / "trace.json")
    check_trace(json.loads((tmp_path / "trace.json").read_text()), report.summary.num_steps)


def test_one_profile_at_a_time_and_only_so_many_steps(smollm2: LLM) -> None:
    with smollm2.profile(max_steps=3) as profile:
        with pytest.raises(EngineError, match="being taken") as refused, smollm2.profile():
            pass
        smollm2.generate([[1, 2, 3]], SamplingParams(max_tokens=10, temperature=0, ignore_eos=True))
    assert refused.value.code == "profile_running"
    assert profile.report.summary.num_steps == 3
    assert profile.report.missing.skipped_steps == 0
    with smollm2.profile() as profile:
        pass
    assert profile.table().startswith("No step ran.")
    with pytest.raises(ValueError, match="0; a profile"):
        smollm2.profile(max_steps=0)


def test_a_closed_model_has_no_profile_and_a_block_says_why(smollm2_path: Path) -> None:
    llm = LLM(smollm2_path)
    with pytest.raises(EngineError) as stopped, llm.profile():
        llm.close()
    assert stopped.value.code == "engine_stopped"
    with pytest.raises(EngineError), llm.profile():
        pass


def test_other_backends_say_that_they_cant_be_profiled(llm: LLM) -> None:
    with pytest.raises(EngineError, match="backend 'cpu'") as refused, llm.profile():
        llm.generate([[5, 6, 7]], SamplingParams(max_tokens=3))
    assert refused.value.code == "profiling_unsupported"
