"""``freehold bench`` as a user runs it: its flags, what it prints and writes, Ctrl-C and going on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests import processes
from tests.loadtest.runs import StubServer

from freehold.loadtest.result_file import read_result

ENDINGS = pytest.mark.parametrize(
    ("sent", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
BEHAVIOUR = {"stub": {"first_token_s": 0.05, "gap_s": 0.005}}


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "freehold", "bench", *map(str, arguments)]


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "FREEHOLD_HOME": str(home)}


def run(home: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), check=False, capture_output=True, text=True, env=environment(home), timeout=120
    )


def test_flags_as_vllm_spells_them(stub: StubServer, tmp_path: Path) -> None:
    stub.truth()
    done = run(
        tmp_path, "--backend", "vllm", "--base-url", stub.url, "--dataset-name", "random", "--random-input-len", "8",
        "--random-output-len", "12", "--num-prompts", "24", "--max-concurrency", "2,8", "--num-warmups", "2", "--seed",
        "5", "--ignore-eos", "--goodput", "ttft:1000", "tpot:500", "e2el:5000", "--percentile-metrics",
        "ttft,tpot,itl,e2el", "--metric-percentiles", "50,99", "--extra-body", json.dumps(BEHAVIOUR), "--metadata",
        "gpu=none", "price=0.5", "--save-detailed", "--result-dir", tmp_path, "--result-filename", "found.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "== 2 at a time ==" in done.stdout
    assert "n too small (24 of 1000)" in done.stdout
    assert "P50 TTFT (ms):" in done.stdout
    assert "Operating point: 8 at a time" in done.stdout or "INVALID" in done.stdout
    assert done.stderr.count("at a time: 24 of 24 requests") == 2, "a line for each point, as stderr is no terminal"
    flat = json.loads((tmp_path / "found.json").read_text())
    assert (flat["completed"], flat["failed"], flat["total_output_tokens"]) == (24, 0, 288)
    assert len(flat["ttfts"]) == 24
    result = read_result(tmp_path / "found.json")
    assert [point.load.concurrency for point in result.points] == [2, 8]
    assert result.facts.seed == 5
    assert result.facts.metadata == {"gpu": "none", "price": "0.5"}
    assert (tmp_path / "found.sqlite").stat().st_size > 0
    bodies = [truth.body for truth in stub.truth().values()]
    assert all(body["ignore_eos"] and body["max_tokens"] == 12 and len(body["prompt"]) == 8 for body in bodies)
    assert len(bodies) == 2 * (24 + 2)


@pytest.mark.slow
@ENDINGS
def test_an_end_keeps_what_there_is_and_resume_goes_on(
    stub: StubServer, tmp_path: Path, sent: signal.Signals, code: int, word: str
) -> None:
    arguments = command(
        "--base-url", stub.url, "--max-concurrency", "1,2", "--num-prompts", "20", "--random-input-len", "4",
        "--random-output-len", "4", "--extra-body", '{"stub": {"first_s": 0.1}}', "--quiet",
        "--result-filename", tmp_path / "found.json",
    )  # fmt: skip
    stub.truth()
    with processes.start(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(tmp_path)
    ) as running:
        asked: set[str] = set()
        while len(asked) < 26:  # within the second point
            assert running.poll() is None, "it ended by itself"
            time.sleep(0.05)
            asked |= {key for key in stub.truth() if key.startswith("bench-")}
        running.send_signal(sent)
        printed, said = running.communicate(timeout=60)
    assert running.returncode == code
    assert said.endswith(f"freehold: {word}\n")
    assert "interrupted" in printed
    assert f"--resume {tmp_path / 'found.sqlite'}" in printed
    cut = read_result(tmp_path / "found.json")
    assert cut.points[0].completed == 20
    assert not cut.points[1].is_complete
    done = run(tmp_path, "--resume", tmp_path / "found.sqlite", "--quiet")
    assert done.returncode == 0, done.stderr
    whole = read_result(tmp_path / "found.json")
    assert [(point.completed, point.is_complete) for point in whole.points] == [(20, True), (20, True)]
    assert whole.points[0].duration == cut.points[0].duration


@pytest.mark.parametrize(("status", "code"), [([500], 1), ([500, 200], 0)])
def test_the_exit_code_tells_whether_any_request_succeeded(tmp_path: Path, status: list[int], code: int) -> None:
    with StubServer("--default", json.dumps([{"status": each} for each in status])) as failing:
        done = run(
            tmp_path, "--base-url", failing.url, "--num-prompts", "4", "--max-concurrency", "2", "--num-warmups", "0",
            "--random-input-len", "4", "--random-output-len", "2", "--quiet",
        )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert ("no request succeeded" in done.stdout) == (code == 1)
    assert done.stderr == ""


def test_a_server_that_misbehaves_in_every_way_is_no_traceback(tmp_path: Path) -> None:
    """Each kind is counted under its name, the answers that came are measured, and the exit code says that some did."""
    told: list[dict[str, object]] = [
        {}, {"status": 429, "headers": {"Retry-After": "3"}}, {"status": 503}, {"drop_at": 1}, {"fault": "chunk"},
        {"usage": False}, {"done": False}, {"counted": 1 << 50}, {"head_bytes": 400_000},
        {"status": 307, "headers": {"Location": "https://other"}}, {"fault": "http"}, {"fault": "error"},
    ]  # fmt: skip
    with StubServer("--default", json.dumps(told)) as odd:
        done = run(
            tmp_path, "--base-url", odd.url, "--num-prompts", str(2 * len(told)), "--max-concurrency", "4",
            "--num-warmups", "0", "--random-input-len", "4", "--random-output-len", "3", "--quiet",
            "--result-filename", tmp_path / "found.json",
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    (point,) = read_result(tmp_path / "found.json").points
    assert point.completed == 8
    assert point.error_counts == {
        "http_429": 2, "http_503": 2, "dropped": 2, "malformed": 6, "http_307": 2, "error_event": 2,
    }  # fmt: skip
    assert {"failures", "unknown_tokens"} <= {each.code for each in point.invalid}
    assert {"no_done", "impossible_usage"} <= {each.code for each in point.warnings}


@ENDINGS
def test_an_end_before_any_request_ended_says_how_to_go_on(
    tmp_path: Path, sent: signal.Signals, code: int, word: str
) -> None:
    found = tmp_path / "found.json"
    behaviours = [{"first_s": 60}, {}]  # the second one after going on
    with StubServer("--default", json.dumps(behaviours)) as stub:
        arguments = command(
            "--base-url", stub.url, "--num-prompts", "1", "--max-concurrency", "1", "--num-warmups", "0",
            "--random-input-len", "4", "--random-output-len", "2", "--quiet", "--result-filename", found,
        )  # fmt: skip
        with processes.start(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(tmp_path)
        ) as running:
            while not any(key.startswith("bench-") for key in stub.truth()):
                assert running.poll() is None, "it ended by itself"
                time.sleep(0.05)
            running.send_signal(sent)
            printed, said = running.communicate(timeout=60)
        assert running.returncode == code
        assert printed == f"Interrupted; go on with `freehold bench --resume {found.with_suffix('.sqlite')}`.\n"
        assert said.endswith(f"freehold: {word}\n")
        done = run(tmp_path, "--resume", found.with_suffix(".sqlite"), "--quiet")
    assert done.returncode == 0, done.stderr
    whole = read_result(found)
    assert whole.points[0].completed == 1
    found.unlink()
    again = run(tmp_path, "--resume", found.with_suffix(".sqlite"), "--quiet")  # its server is gone
    assert (again.returncode, again.stdout) == (0, done.stdout)
    assert "Nothing is missing" in again.stderr
    assert read_result(found) == whole


@pytest.mark.slow
def test_a_point_of_an_over_saturated_server_ends_after_half_a_minute(tmp_path: Path) -> None:
    with StubServer("--default", json.dumps({"serial_s": 0.1})) as stub:
        done = run(
            tmp_path, "--base-url", stub.url, "--request-rate", "20", "--num-prompts", "1200", "--num-warmups", "0",
            "--random-input-len", "4", "--random-output-len", "1", "--detect-saturation",
            "--result-filename", tmp_path / "found.json",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "INVALID: stopped after 3" in done.stdout
    assert "STOPPED  INVALID" in done.stderr
    (point,) = read_result(tmp_path / "found.json").points
    assert point.stopped is not None
    assert 30 <= point.stopped.after_s < 39
    assert point.stopped.num_broken_off > 200


def test_what_cant_be_ends_in_one_sentence(tmp_path: Path) -> None:
    done = run(tmp_path, "--goodput", "ttft:fast")
    assert done.returncode == 2
    assert done.stderr.startswith("freehold: --goodput can't be 'ttft:fast'")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
