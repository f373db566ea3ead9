"""``freehold record`` and ``freehold replay``, as a person calls them."""

import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.unit.observe.recordings import begin, finish, record_one, recorder, request, tokens

from freehold.cli import commands
from freehold.cli import record as command
from freehold.cli.record import record
from freehold.errors import UserError
from freehold.observe.record.hashes import BLOCK_TOKENS
from freehold.protocol import RequestId, StepRows
from freehold.replay.report import Differing, Report, lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two requests that shared a step, one in metadata alone, one that failed, one that runs."""
    folder = tmp_path / "recording"
    with recorder(folder) as writing:
        first, second = request("first", tuple(range(BLOCK_TOKENS + 3))), request("second", tuple(range(BLOCK_TOKENS)))
        takes = [begin(writing, each, key_id="alice") for each in (first, second)]
        writing.step(StepRows(3, 12.0, (RequestId("first"), RequestId("second")), (515, 512)))
        for generate, take in zip((first, second), takes, strict=True):
            take.see(tokens(generate, 7))
            take.see(finish(generate, 1, num_cached_tokens=2))
        record_one(writing, "metadata", detail="metadata")
        begin(writing, request("failed")).see(finish(request("failed"), 0, "failed", code="numeric_error"))
        begin(writing, request("running"))
    return folder


def run(*arguments: str, fails: bool = False) -> str:
    result = CliRunner().invoke(record, list(arguments), catch_exceptions=fails)
    assert (result.exit_code != 0) is fails, result.output
    return str(result.exception) if fails else result.stdout


def listed(*arguments: str) -> list[str]:
    return [line.split()[0] for line in run("ls", *arguments).splitlines()[1:]]


def test_ls_filters(folder: Path) -> None:
    assert listed(str(folder)) == ["1-1", "1-2", "1-3", "1-4", "1-5"]
    assert listed(str(folder), "--limit", "2") == ["1-4", "1-5"]
    assert listed(str(folder), "--key", "alice") == ["1-1", "1-2"]
    assert listed(str(folder), "--outcome", "failed") == ["1-4"]
    assert listed(str(folder), "--outcome", "running") == ["1-5"]
    assert listed(str(folder), "--until", "1970-01-01T00:00") == []
    assert len(listed(str(folder), "--since", "1970-01-01T00:00Z", "--until", "2100-01-01")) == 5
    line = next(line for line in run("ls", str(folder)).splitlines() if line.startswith("1-1 "))
    assert line.split()[3:8] == ["alice", "full", "515", "2", "1"]
    assert "say" in run("ls", str(folder), "--since", "yesterday", fails=True)
    assert "running" in run("ls", str(folder), "--outcome", "good", fails=True)
    assert "--record" in run("ls", str(folder.parent / "none"), fails=True)


def test_the_folder_may_be_named_as_servers_spell_it(folder: Path) -> None:
    given = ("--record-dir", str(folder))
    for arguments in (("ls",), ("show", "1-1"), ("export",)):
        assert run(*arguments, *given) == run(*arguments, str(folder))
    assert run("ls", str(folder), *given) == run("ls", str(folder))
    assert "name one" in run("ls", str(folder.parent), *given, fails=True)
    with pytest.raises(UserError, match="fast or recorded"):
        CliRunner().invoke(commands.app, ["replay", *given, "--timing", "slow"], catch_exceptions=False)


def test_show_tells_steps_and_neighbours(folder: Path) -> None:
    for name in ("1-1", "first", "http-first"):
        shown = run("show", name, str(folder))
        assert "step 3" in shown
        assert "515 tokens; beside 1-2:512" in shown
        assert "preempted 1 times" in shown
        assert "prompt 515, reused 2, output 1" in shown
    assert "steps: not known" in run("show", "1-4", str(folder))
    assert "1-99" in run("show", "1-99", str(folder), fails=True)
    assert "/models/m" in run("show", "1-1", str(folder), "--text", fails=True), "where the model was"


def test_show_text_asks_the_named_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_decoder", lambda _recorded, model: lambda ids: f"{model}:{len(ids)}")
    shown = run("show", "1-1", str(folder), "--text", "--model", "m")
    assert "prompt: 'm:515'" in shown
    assert "answer: 'm:1'" in shown
    assert shown.index("answer:") < shown.index("parameters"), "what is wanted comes before what there is much of"
    assert "prompt:" not in run("show", "1-3", str(folder), "--text", "--model", "m"), "there is none in metadata"


def test_export_as_json_lines(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    assert run("export", str(folder), "--output", str(output)) == ""
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["id"] for line in lines] == ["1-1", "1-2", "1-3", "1-4", "1-5"]
    assert lines[0]["token_ids"] == [7]
    assert lines[0]["generate"]["prompt_ids"][:3] == [0, 1, 2]
    assert lines[0]["digests"] == [f"{7000:016x}"]
    assert "generate" not in lines[2]
    assert Counter(line["outcome"] for line in lines) == {"finished": 3, "failed": 1, None: 1}
    assert "can't write to" in run("export", str(folder), "-o", str(tmp_path / "no folder" / "x"), fails=True)
    assert "mooncake" in run("export", str(folder), "--format", "csv", fails=True)
    text = run("export", str(folder), "--format", "mooncake", "--text", "-o", str(output), fails=True)
    assert "leave out --text" in text
    assert output.read_text(), "nothing was begun"


def test_export_says_how_many_it_wrote(folder: Path, tmp_path: Path) -> None:
    for flags, said in (((), "5 of 5"), (("--key", "alice"), "2 of 5"), (("--key", "zzz"), "0 of 5"),
                        (("--format", "mooncake"), "3 of 5")):  # fmt: skip
        result = CliRunner().invoke(record, ["export", str(folder), "-o", str(tmp_path / "out"), *flags])
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"{said} recorded requests\n")


def test_export_as_a_mooncake_trace_has_lengths_and_shared_blocks_alone(folder: Path) -> None:
    lines = [json.loads(line) for line in run("export", str(folder), "--format", "mooncake").splitlines()]
    assert [(line["input_length"], line["output_length"]) for line in lines] == [(515, 1), (512, 1), (3, 3)]
    assert [line["hash_ids"] for line in lines] == [[0, 1], [0], [2]]
    assert lines[0]["timestamp"] == 0
    assert all(line.keys() == {"timestamp", "input_length", "output_length", "hash_ids"} for line in lines)


def test_replay_needs_a_model_and_something_to_compare(folder: Path, tmp_path: Path) -> None:
    def replay(*arguments: str) -> str:
        result = CliRunner().invoke(commands.app, ["replay", *arguments])
        assert isinstance(result.exception, UserError)
        return str(result.exception)

    assert "/models/m" in replay(str(folder)), "where the model was when it was recorded"
    assert "fast or recorded" in replay(str(folder), "--timing", "slow")
    assert "there is no recording" in replay(str(tmp_path / "none"))
    for report in (tmp_path / "none" / "x.json", tmp_path):
        assert f"the report can't be written to {report}" in replay(str(folder), "--report", str(report)), "at once"


def test_reports_count_in_words() -> None:
    one = Report(
        recording="r",
        fingerprint="f",
        runs=[],
        num_requests=1,
        num_compared=1,
        num_tokens=1,
        num_partial=1,
        num_differing=0,
    )
    assert next(lines(one)).startswith("1 request: 1 compared (1 token, 1 request up to where it was broken off) in")
    two = Report(
        recording="r",
        fingerprint="f",
        runs=[],
        num_requests=2,
        num_compared=2,
        num_tokens=3,
        num_partial=2,
        num_differing=0,
    )
    assert next(lines(two)).startswith("2 requests: 2 compared (3 tokens, 2 requests up to where they were broken off)")
    one.num_partial = 0
    assert next(lines(one)).startswith("1 request: 1 compared (1 token) in")
    one.num_differing, one.differing = 1, [Differing(record_id="1-1", request_id="a", cause="c", failure="it failed")]
    assert "1 request differs; the first: request 1-1 (a): it failed" in list(lines(one))
