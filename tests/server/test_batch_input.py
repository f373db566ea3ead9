"""Input files of batches: what is taken, and what is refused by line and field."""

import json
from pathlib import Path
from typing import Any

import pytest

from freehold.serve.batches import lines
from freehold.serve.batches.lines import MAX_FAULTS, InputFileError, parse_line, read_input

ENDPOINT = "/v1/completions"
MAX_BODY_BYTES = 4096


def line(custom_id: Any = "a", **changes: Any) -> bytes:
    fields = {"custom_id": custom_id, "method": "POST", "url": ENDPOINT, "body": {"prompt": "Hi"}, **changes}
    return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


def read(path: Path, content: bytes) -> list[tuple[int, str]]:
    """Numbers and custom ids; each place in the file holds exactly the line."""
    path.write_bytes(content)
    places = read_input(path, ENDPOINT, MAX_BODY_BYTES)
    for place in places:
        assert parse_line(content[place.begin : place.begin + place.num_bytes]).custom_id == place.custom_id
    return [(place.number, place.custom_id) for place in places]


@pytest.mark.parametrize(
    "content",
    [
        line("a") + b"\n" + line("b") + b"\n",
        line("a") + b"\n" + line("b"),
        line("a") + b"\r\n" + line("b") + b"\r\n",
        b"\xef\xbb\xbf" + line("a") + b"\n" + line("b") + b"\n",
        b"  " + line("a") + b"\t \n  " + line("b") + b"  \r\n",
    ],
    ids=["plain", "no last end", "CRLF", "BOM", "spaces"],
)
def test_lines_are_found_however_they_end(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path / "in", content) == [(1, "a"), (2, "b")]


def test_empty_lines_count_but_are_no_requests(tmp_path: Path) -> None:
    assert read(tmp_path / "in", b"\n\r\n" + line("a") + b"\n   \n" + line("b") + b"\n\n") == [(3, "a"), (5, "b")]


@pytest.mark.parametrize(
    ("content", "code", "param", "number"),
    [
        (b"", "empty_file", None, None),
        (b"\xef\xbb\xbf", "empty_file", None, None),
        (b"\n \r\n\n", "empty_file", None, None),
        (b"nonsense", "invalid_json", None, 1),
        (b"[1]", "invalid_type", None, 1),
        (line()[:-1], "invalid_json", None, 1),
        (b"\x00" * 50, "invalid_json", None, 1),
        (b"\xff\xfe" + line().decode().encode("utf-16-le"), "invalid_unicode", None, 1),
        (line().replace(b"Hi", b"\xff"), "invalid_unicode", None, 1),
        (line(body=...), "missing_field", "body", 1),
        (line(custom_id=...), "missing_field", "custom_id", 1),
        (line(custom_id=5), "invalid_type", "custom_id", 1),
        (line(custom_id=None), "invalid_type", "custom_id", 1),
        (line(custom_id=""), "invalid_value", "custom_id", 1),
        (line(custom_id="x" * 513), "invalid_value", "custom_id", 1),
        (line(method="GET"), "invalid_value", "method", 1),
        (line(url="/v1/chat/completions"), "mismatched_endpoint", "url", 1),
        (line(url="http://localhost/v1/completions"), "mismatched_endpoint", "url", 1),
        (line(body=[1]), "invalid_type", "body", 1),
        (line(body=None), "invalid_type", "body", 1),
        (line(extra=1), "unknown_field", "extra", 1),
        (line("a") + b"\n" + line("b") + b"\n" + line("a"), "duplicate_custom_id", "custom_id", 3),
        (line("a") + b"\n" + line("b", body={"prompt": "x" * 20_000}), "line_too_long", None, 2),
        (line("a") + b"\n" + b"[" * 9000, "too_deep", None, 2),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, content: bytes, code: str, param: str | None, number: int | None
) -> None:
    with pytest.raises(InputFileError) as raised:
        read(tmp_path / "in", content)
    (fault,) = raised.value.faults
    assert (fault.code, fault.param, fault.line) == (code, param, number)
    assert fault.message


def test_all_wrong_lines_are_named_up_to_a_number(tmp_path: Path) -> None:
    with pytest.raises(InputFileError) as raised:
        read(tmp_path / "in", b"\n".join([line("a"), b"x", line("b"), b"y", line("b")]))
    assert [fault.line for fault in raised.value.faults] == [2, 4, 5]
    with pytest.raises(InputFileError) as raised:
        read(tmp_path / "in", b"x\n" * 1000)
    assert len(raised.value.faults) == MAX_FAULTS


def test_a_line_without_end_takes_no_memory(tmp_path: Path) -> None:
    """It is read in pieces, and the lines after it are still found."""
    content = line("a") + b"\n" + b"x" * (64 << 20) + b"\n" + line("a") + b"\n"
    with pytest.raises(InputFileError) as raised:
        read(tmp_path / "in", content)
    assert [(fault.line, fault.code) for fault in raised.value.faults] == [
        (2, "line_too_long"), (3, "duplicate_custom_id"),
    ]  # fmt: skip


@pytest.mark.parametrize("num_lines", [100, pytest.param(50_000, marks=pytest.mark.slow)])
def test_a_batch_has_no_more_lines_than_it_may(tmp_path: Path, num_lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines.MAX_LINES == 50_000
    monkeypatch.setattr(lines, "MAX_LINES", num_lines)
    content = b"\n".join(line(f"{number}") for number in range(num_lines))
    assert len(read(tmp_path / "in", content)) == num_lines
    with pytest.raises(InputFileError, match=f"more than {num_lines}"):
        read(tmp_path / "in", content + b"\n" + line("one more"))
