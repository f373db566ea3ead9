"""``freehold record ls``, ``show`` and ``export``."""

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from freehold import resolve
from freehold.cli.options import PATH, Commands
from freehold.cli.recordings import recording_path, with_recording
from freehold.errors import ConfigError, RecordingError, ResourceError, printable
from freehold.setting_kinds import parse_span

if TYPE_CHECKING:
    from freehold.observe.record.export import ToText
    from freehold.observe.record.reader import RecordedRequest, Recording

FORMATS = ("jsonl", "mooncake")

_since_option = click.option("--since", metavar="WHEN", help="Begun after: 30m, 2h, 1d ago, or 2026-11-30T09:00 (UTC).")
_until_option = click.option("--until", metavar="WHEN", help="Begun before.")
_key_option = click.option("--key", metavar="ID", help="Of this key.")
_outcome_option = click.option(
    "--outcome", metavar="OUTCOME", help="finished, stopped, cancelled, failed, refused, running."
)
_text_option = click.option("--text", is_flag=True, help="Prompts and answers as text, if they were recorded.")
_model_option = click.option("--model", help="Whose tokens they are, for --text; default: the recorded path.")


@click.group(cls=Commands, no_args_is_help=True)
def record() -> None:
    """Look at what a server has recorded."""


@record.command("ls")
@with_recording
@_since_option
@_until_option
@_key_option
@_outcome_option
@click.option("--limit", type=click.IntRange(1), metavar="N", default=50, help="The last N.")
def list_requests(
    recording: Path | None, since: str | None, until: str | None, key: str | None, outcome: str | None, limit: int
) -> None:
    """List recorded requests, one answer a line, the newest last."""
    from freehold.observe.record.listing import COLUMNS, row

    with _opened(recording) as opened:
        is_wanted = _filter(since, until, key, outcome)
        newest = (row(each) for each in opened.requests(newest_first=True) if is_wanted(each))
        found = list(islice(newest, limit))[::-1]
        total = len(opened)
    rows = [COLUMNS, *found]
    widths = [max(len(each[column]) for each in rows) for column in range(len(COLUMNS))]
    for each in rows:
        print(printable("  ".join(f"{cell:{width}}" for cell, width in zip(each, widths, strict=True)).rstrip()))
    print(f"{len(found)} of {total} recorded requests", file=sys.stderr)


@record.command()
@click.argument("request", metavar="ID", help="As `freehold record ls` names it, or a request's id.")
@with_recording
@_text_option
@_model_option
def show(request: str, recording: Path | None, text: bool, model: str | None) -> None:
    """Show one request: parameters, stages, steps, and who shared them."""
    from freehold.observe.record.listing import details

    with _opened(recording) as opened:
        found = _find(opened, request)
        steps = list(opened.steps_of(found))
        to_text = _decoder(found, model) if text else None
        for line in details(found, steps, to_text):
            print(printable(line))


@record.command()
@with_recording
@click.option(
    "--format", "form", metavar="{jsonl,mooncake}", default="jsonl", help="All of it, or lengths and hashes alone."
)
@click.option("--output", "-o", type=PATH, metavar="FILE", help="Default: standard output.")
@_since_option
@_until_option
@_key_option
@_outcome_option
@_text_option
@_model_option
def export(
    recording: Path | None,
    form: str,
    output: Path | None,
    since: str | None,
    until: str | None,
    key: str | None,
    outcome: str | None,
    text: bool,
    model: str | None,
) -> None:
    """Write recorded requests as JSON lines, or as a trace in Mooncake's format."""
    import msgspec

    from freehold.observe.record.export import as_json, mooncake

    if form not in FORMATS:
        raise ConfigError(f"format can't be {form!r}; say {' or '.join(FORMATS)}")
    if text and form == "mooncake":
        raise ConfigError("Mooncake's format holds no text; leave out --text, or say --format jsonl")
    num_written = 0
    with _opened(recording) as opened, _output(output) as file:
        is_wanted = _filter(since, until, key, outcome)
        wanted = (each for each in opened.requests() if is_wanted(each))
        decoders: dict[str, ToText] = {}

        def to_text_of(each: "RecordedRequest") -> "ToText":
            path = each.header.model_path
            if path not in decoders:
                decoders[path] = _decoder(each, model)
            return decoders[path]

        lines = (
            mooncake(wanted)
            if form == "mooncake"
            else (as_json(each, to_text_of(each) if text else None) for each in wanted)
        )
        for line in lines:
            file.write(msgspec.json.encode(line).decode() + "\n")
            num_written += 1
        total = len(opened)
    print(f"{num_written} of {total} recorded requests", file=sys.stderr)


@contextmanager
def _opened(path: Path | None) -> "Iterator[Recording]":
    from freehold.observe.record.reader import open_recording

    with open_recording(recording_path(path)) as opened:
        for fault in opened.faults:
            print(f"note: {printable(fault)}", file=sys.stderr)
        yield opened


@contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """
    Raises:
        ResourceError: the file can't be written.
    """
    if path is None:
        yield sys.stdout
        return
    try:
        with path.open("w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise ResourceError(f"can't write to {path}: {error.strerror}") from None


def _find(opened: "Recording", name: str) -> "RecordedRequest":
    """
    Raises:
        RecordingError: there is no such request.
    """
    found = opened.find(name) or next(
        (each for each in opened.requests() if name in {each.begun.request_id, each.begun.http_id}), None
    )
    if found is None:
        raise RecordingError(f"there is no request {name!r} in {opened.path}; `freehold record ls` lists what is there")
    return found


def _filter(
    since: str | None, until: str | None, key: str | None, outcome: str | None
) -> "Callable[[RecordedRequest], bool]":
    """
    Raises:
        ConfigError: a time can't be read, or there is no such outcome.
    """
    from freehold.observe.record.format import OUTCOMES

    if outcome is not None and outcome not in {*OUTCOMES, "running"}:
        raise ConfigError(f"outcome can't be {outcome!r}; say {', '.join(OUTCOMES)} or running")
    first_s = None if since is None else _moment(since)
    last_s = None if until is None else _moment(until)

    def is_wanted(each: "RecordedRequest") -> bool:
        return (
            (first_s is None or each.began_unix_s >= first_s)
            and (last_s is None or each.began_unix_s < last_s)
            and (key is None or each.begun.key_id == key)
            and (outcome is None or (each.outcome or "running") == outcome)
        )

    return is_wanted


def _moment(text: str) -> float:
    """Unix seconds.

    Raises:
        ConfigError: it is no time.
    """
    if re.fullmatch(r"[0-9]+[a-z]", text):
        try:
            return time.time() - parse_span(text)
        except ValueError as error:
            raise ConfigError(f"a time can't be {text!r}: say {error}") from None
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"a time can't be {text!r}; say 30m, 2h, 1d, or a moment such as 2026-11-30T09:00") from None
    return (given if given.tzinfo is not None else given.replace(tzinfo=UTC)).timestamp()


def _decoder(recorded: "RecordedRequest", model: str | None) -> "ToText":
    """What makes text of a request's ids.

    Raises:
        ConfigError: nobody says where the model is.
        UserError: it can't be read.
    """
    from freehold.files import store
    from freehold.files.model import open_model
    from freehold.files.vocabulary import load_text

    named = model or recorded.header.model_path
    if not named:
        raise ConfigError("the recording doesn't say where its model is; name it with --model")
    home: Path = resolve.home_directory()
    with open_model(store.locate(named, home)) as files:
        tokenizer = load_text(files).tokenizer
    return partial(tokenizer.decode, skip_control=False)
