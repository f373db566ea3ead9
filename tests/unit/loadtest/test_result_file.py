"""The JSON: vLLM's keys, ours in a namespace, and the same back."""

import dataclasses
from pathlib import Path

import msgspec
import pytest
from tests.unit.loadtest.records import changed, point, record

from freehold.errors import ConfigError
from freehold.loadtest.result_file import as_json, of_json, read_result, write_result
from freehold.loadtest.results import Load, PointResult, RunFacts, RunResult, ServerFigures
from freehold.loadtest.server_metrics import Reading
from freehold.loadtest.summary import Wanted

FACTS = RunFacts(
    date="2026-11-30T10:00:00+00:00", version="0.1.0", backend="openai", base_url="http://x", endpoint="/v1/x",
    model_id="m", tokenizer_id="m", label=None, dataset="random", num_prompts=3, seed=7, metadata={"price": "0.52"},
)  # fmt: skip

VLLM_KEYS = {
    "duration", "completed", "failed", "total_input_tokens", "total_output_tokens", "request_throughput",
    "request_goodput", "output_throughput", "total_token_throughput", "max_output_tokens_per_s",
    "max_concurrent_requests", "date", "backend", "endpoint_type", "label", "model_id", "tokenizer_id", "num_prompts",
    "request_rate", "burstiness", "max_concurrency", "mean_client_queue_time_ms", "median_client_queue_time_ms",
    "p99_client_queue_time_ms", "p99_e2el_including_client_queue_ms",
    *(f"{figure}_{metric}_ms" for figure in ("mean", "median", "std", "p50", "p90", "p95", "p99", "p99.9")
      for metric in ("ttft", "tpot", "itl", "e2el")),
}  # fmt: skip
DETAILED_KEYS = {"input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "queue_times", "errors"}
WANTED = Wanted(percents=(99.9,), limits_ms={"ttft": 150})


def a_point(concurrency: int = 1) -> PointResult:
    records = [record(0.0), record(1.0, intended_s=0.5), record(2.0, error="http_500", message="told to")]
    return point(*records, load=Load(kind="closed", concurrency=concurrency), wanted=WANTED)


def test_a_point_has_vllms_keys() -> None:
    flat = as_json(RunResult(FACTS, (a_point(),)))
    assert set(flat) == VLLM_KEYS | DETAILED_KEYS | {"freehold"}
    assert flat["request_rate"] == "inf"
    assert flat["max_concurrency"] == 1
    assert flat["mean_ttft_ms"] == pytest.approx(100)
    assert flat["p99_e2el_including_client_queue_ms"] == pytest.approx(160 + 500 * 0.99)
    assert flat["request_goodput"] == pytest.approx(1 / flat["duration"])
    assert flat["ttfts"] == pytest.approx([0.1, 0.1, 0.1])
    assert flat["errors"] == ["", "", "http_500: told to"]
    assert flat["itls"][0] == pytest.approx([0.02] * 3)
    assert flat["freehold"]["goodput"]["fraction"] == pytest.approx(1 / 3)


def test_rates_and_ramps_have_vllms_keys() -> None:
    ramp = Load(kind="open", ramp_up_strategy="linear", ramp_up_start_rps=1.0, ramp_up_end_rps=5.0, max_concurrency=9)
    flat = as_json(RunResult(FACTS, (point(record(0.0), load=ramp),)))
    assert (flat["ramp_up_strategy"], flat["ramp_up_start_rps"], flat["ramp_up_end_rps"]) == ("linear", 1.0, 5.0)
    assert flat["max_concurrency"] == 9
    assert (
        as_json(RunResult(FACTS, (point(record(0.0), load=Load(kind="open", request_rate=2.5)),)))["request_rate"]
        == 2.5
    )


def test_speculation_has_vllms_keys() -> None:
    server = ServerFigures(
        num_drafts=10.0, draft_tokens=40.0, accepted_tokens=20.0, accepted_per_position=[9.0, 6.0, 4.0, 1.0]
    )
    flat = as_json(RunResult(FACTS, (changed(a_point(), server=server),)))
    assert flat["spec_decode_acceptance_rate"] == 50
    assert flat["spec_decode_acceptance_length"] == 3
    assert (flat["spec_decode_num_drafts"], flat["spec_decode_draft_tokens"], flat["spec_decode_accepted_tokens"]) == (
        10,
        40,
        20,
    )
    assert flat["spec_decode_per_position_acceptance_rates"] == pytest.approx([0.9, 0.6, 0.4, 0.1])


def test_several_points_stand_in_our_namespace_and_the_operating_point_at_the_top(tmp_path: Path) -> None:
    points = (a_point(1), a_point(8), a_point(32))
    points = (points[0], changed(points[1], invalid=[]), points[2])
    points = (points[0], changed(points[1], invalid=[]), changed(points[2], duration=99.0))
    result = RunResult(FACTS, points, knee=2, operating_point=1)
    write_result(result, tmp_path / "x.json", is_detailed=True)
    flat = msgspec.json.decode((tmp_path / "x.json").read_bytes())
    assert flat["max_concurrency"] == 8
    assert [each["max_concurrency"] for each in flat["freehold"]["points"]] == [1, 8, 32]
    assert read_result(tmp_path / "x.json") == result
    last = as_json(dataclasses.replace(result, operating_point=None))
    assert last["duration"] == 99.0


def test_single_requests_are_left_out_unless_wanted(tmp_path: Path) -> None:
    write_result(RunResult(FACTS, (a_point(),)), tmp_path / "x.json", is_detailed=False)
    flat = msgspec.json.decode((tmp_path / "x.json").read_bytes())
    assert not DETAILED_KEYS & set(flat)
    assert read_result(tmp_path / "x.json").points[0].detail is None


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"freehold": {"format": 99}}', '{"freehold": 3}'])
def test_what_is_no_result_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ConfigError):
        read_result(path)


def test_a_file_that_is_missing_or_cant_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't read"):
        read_result(tmp_path / "none.json")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="can't write"):
        write_result(RunResult(FACTS, (a_point(),)), tmp_path / "file" / "x.json", is_detailed=True)


def test_the_servers_timeline_comes_along() -> None:
    readings = [Reading(5.0 + at, {"running": 2.0, "waiting": float(at), "kv_usage": 0.5}, {}) for at in range(3)]
    found = point(record(0.0), readings=readings, origin_s=5.0)
    assert [(each.at_s, each.waiting) for each in found.server.timeline] == [(0, 0), (1, 1), (2, 2)]
    assert of_json(as_json(RunResult(FACTS, (found,)))).points[0] == found
