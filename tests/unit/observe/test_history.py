"""The last hour: rings that stay bounded, rates between moments, coarse points that agree with fine ones."""

from typing import Any

import pytest

from freehold.observe.history import COARSE_S, NUM_COARSE, NUM_FINE, WINDOWS_S, History, Moment, changes
from freehold.observe.state import EngineState, KVUse, StepSeconds, Waiting


def state(at_s: float, **changed: Any) -> EngineState:
    """An engine that computes 100 tokens a second, 10 of them again, runs half of the time, and finds 3 of 4 tokens."""
    fields = {
        "at_s": at_s, "num_running": 2, "num_prefilling": 1, "waiting": Waiting(rows=3), "kv": KVUse(10, 4, 5, 1),
        "prefix_queries_total": int(40 * at_s), "prefix_hits_total": int(30 * at_s), "preemptions_total": int(2 * at_s),
        "computed_total": int(100 * at_s), "recomputed_total": int(10 * at_s), "sampled_total": 0,
        "steps_total": int(5 * at_s), "iteration_tokens": (), "iteration_tokens_sum": 0,
        "step_seconds": StepSeconds(plan=0.1 * at_s, run=0.5 * at_s, apply=0.1 * at_s, idle=0.3 * at_s),
    }  # fmt: skip
    return EngineState(**{**fields, **changed})


def moment(at_s: float, **changed: Any) -> Moment:
    return Moment(**{"at_s": at_s, "engine": state(at_s), "output_total": int(7 * at_s), **changed})


def test_rates_are_of_the_engines_own_time() -> None:
    """The snapshot may be older than the moment."""
    found = changes(moment(10.0, engine=state(9.0)), moment(12.0, engine=state(11.5)))
    assert found["computed"] == pytest.approx(100, rel=0.01)
    assert found["hit_rate"] == pytest.approx(0.75)
    assert [found[part] for part in ("plan", "run", "apply", "idle")] == pytest.approx([0.1, 0.5, 0.1, 0.3])
    assert found["output"] == pytest.approx(7)


def test_nothing_is_made_up_where_nothing_is_known() -> None:
    assert set(changes(None, moment(1.0)).values()) == {None}
    found = changes(moment(1.0, engine=None), moment(2.0))
    assert found["computed"] is None
    assert found["output"] == 7
    same = state(5.0)
    assert changes(moment(6.0, engine=same), moment(7.0, engine=same))["run"] is None
    idle = changes(moment(1.0), moment(2.0, engine=state(2.0, prefix_queries_total=40, prefix_hits_total=30)))
    assert idle["hit_rate"] is None


def test_rings_are_bounded_and_coarse_points_sum_fine_ones_up() -> None:
    history = History()
    for second in range(1, COARSE_S * (NUM_COARSE + 3) + 1):
        if second % 2:
            history.measured("ttft", 0.2)
        history.close(moment(float(second), num_slow_clients=second % 2))
    assert len(history.fine.at) == NUM_FINE
    assert len(history.coarse.at) == NUM_COARSE
    assert {len(column) for column in history.fine.columns.values()} == {NUM_FINE}
    assert {len(column) for column in history.coarse.columns.values()} == {NUM_COARSE}
    newest = {name: column[-1] for name, column in history.coarse.columns.items()}
    assert newest["slow_clients"] == pytest.approx(0.5, abs=0.04)
    assert newest["output"] == pytest.approx(7)
    assert newest["kv_held"] == pytest.approx(0.4)
    assert newest["waiting_rows"] == 3
    assert newest["ttft_p50_s"] == pytest.approx(0.2, rel=0.03)
    for window, window_s in zip(history.windows["ttft"], WINDOWS_S, strict=True):
        assert window_s * 59 / 60 <= 2 * window.total.num <= window_s


def test_only_what_is_new_is_given_out() -> None:
    history = History()
    for second in range(1, 11):
        history.close(moment(float(second)))
    at, columns = history.fine.since(8.0)
    assert at == [9.0, 10.0]
    assert {len(column) for column in columns.values()} == {2}
    assert history.fine.since(10.0)[0] == []
    assert len(history.fine.since(0.0)[0]) == 10


def test_seconds_that_were_slept_through_age_the_windows() -> None:
    history = History()
    history.measured("itl", 0.1)
    history.close(moment(1.0))
    assert history.last_seconds["itl"].total.num == 1
    history.close(moment(31.0), num_seconds=30)
    assert history.last_seconds["itl"].total.num == 0
    assert history.windows["itl"][0].total.num == 1
