"""Metrics of several servers and versions, read with one meaning."""

import pytest

from freehold.loadtest.server_metrics import Reading, figures_of, has_restarted, read_metrics

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1000.0
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.7e+09
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 100.0
vllm:num_preemptions_total{engine="0",model_name="a} b"} 5.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 1.5e+03
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 7.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 1.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 3.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.001",model_name="m"} 0.0
"""


def test_vllms_names() -> None:
    found = read_metrics(VLLM, 1.0)
    assert found.values == {
        "running": 7, "waiting": 2, "kv_usage": 0.75, "prefix_queries": 1000, "prefix_hits": 100, "preemptions": 5,
        "prompt_tokens": 1500,
    }  # fmt: skip
    assert found.per_position == {0: 8, 1: 3}


@pytest.mark.parametrize(
    ("line", "meaning", "value"),
    [
        ("vllm:gpu_cache_usage_perc 0.5", "kv_usage", 0.5),
        ("vllm:gpu_prefix_cache_queries_total 5", "prefix_queries", 5),
        ("vllm:gpu_prefix_cache_hits 4", "prefix_hits", 4),
        ('freehold:queue_reason{engine="0",reason="rows"} 3', "waiting_rows", 3),
        ('freehold:step_seconds_sum{engine="0",part="idle"} 1.5', "idle_s", 1.5),
        ('freehold:engine_info{backend="cpu",max_num_seqs="32"} 1', "max_num_seqs", 32),
        ("vllm:request_prefill_time_seconds_sum 2.5", "prefill_sum_s", 2.5),
        ("llamacpp:requests_processing 2", "running", 2),
        ("llamacpp:requests_deferred 1", "waiting", 1),
        ("llamacpp:tokens_predicted_total 77", "generation_tokens", 77),
        ('sglang:num_queue_reqs{a="b"} 6 1700000000', "waiting", 6),
    ],
)
def test_other_names(line: str, meaning: str, value: float) -> None:
    assert read_metrics(f"{line}\n", 0.0).values == {meaning: value}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "vllm:num_requests_running",
        "vllm:num_requests_running{a=",
        "<html>",
        "freehold:engine_info 1",
        'freehold:queue_reason{reason="other"} 3',
    ],
)
def test_what_tells_nothing_is_passed_over(text: str) -> None:
    assert read_metrics(text, 0.0).values == {}


def reading(at_s: float, **values: float) -> Reading:
    return Reading(at_s, values, {0: values.get("preemptions", 0.0)})


def test_counters_are_differences_summed_over_repeats_and_gauges_a_timeline() -> None:
    first = [reading(10.0, preemptions=5, running=1), reading(11.0, running=4), reading(12.0, preemptions=7, running=0)]
    second = [reading(20.0, preemptions=9, running=1), reading(21.0, preemptions=10, running=1)]
    found = figures_of([(10.0, first), (20.0, second)])
    assert found.preemptions == 3
    assert found.accepted_per_position == [3]
    assert found.prefix_hits is None
    assert [(each.at_s, each.running) for each in found.timeline] == [(0, 1), (1, 4), (2, 0), (2, 1), (3, 1)]


@pytest.mark.parametrize("counts", [(1000, 100), (1000, 5, 2000)])
def test_a_server_that_restarts_within_a_point_leaves_its_counts_unknown(counts: tuple[float, ...]) -> None:
    sound = [reading(float(at), preemptions=at, prompt_tokens=at, running=9 - at) for at in range(3)]
    fallen = [reading(float(at), preemptions=count, prompt_tokens=at) for at, count in enumerate(counts)]
    assert [has_restarted(each) for each in (sound, fallen)] == [False, True]
    found = figures_of([(0.0, sound), (0.0, fallen)])
    assert (found.preemptions, found.prompt_tokens, found.accepted_per_position) == (None, None, [])
    assert len(found.timeline) == 3 + len(counts)


def test_numbers_that_are_none_are_passed_over() -> None:
    assert read_metrics("vllm:num_preemptions_total NaN\nvllm:num_requests_running +Inf", 0.0).values == {}


def test_a_server_without_metrics_gives_empty_figures() -> None:
    assert figures_of([(0.0, [])]).timeline == []
    assert figures_of([(0.0, [reading(1.0, running=1)])]).timeline == []
