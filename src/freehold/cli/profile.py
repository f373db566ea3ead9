"""``freehold profile``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from freehold import resolve
from freehold.cli.options import PATH
from freehold.errors import ResourceError
from freehold.foreign_json import NOT_JSON

if TYPE_CHECKING:
    from freehold.observe.report import Report

_DEFAULT_STEPS = 100


@click.command()
@click.option("--url", help="Of a server that runs with --profile. Default: the one that would run here.")
@click.option("--steps", type=int, help="Steps to wait for. Default: 100.")
@click.option("--seconds", type=float, help="How long to wait for them. Default: 60.")
@click.option("--trace", type=PATH, help="Also write a Chrome trace, for ui.perfetto.dev or chrome://tracing.")
def profile(url: str | None, steps: int | None, seconds: float | None, trace: Path | None) -> None:
    """Show where a running server's time goes: by phase, in bytes, operations and share of the machine's limit."""
    import msgspec

    from freehold.cli.remote_server import RemoteServer, local_url
    from freehold.observe import render

    if steps is None and seconds is None:
        steps = _DEFAULT_STEPS
    body = {name: value for name, value in (("steps", steps), ("seconds", seconds)) if value is not None}
    form = "json" if trace is None else "trace"
    server = RemoteServer(url or local_url(), resolve.client_key())
    with server.request("POST", f"/debug/profile?format={form}", msgspec.json.encode(body)) as response:
        answer = response.read()
    if trace is not None:
        try:
            trace.write_bytes(answer)
        except OSError as error:
            raise ResourceError(f"can't write {trace}: {error.strerror}; name another file with --trace") from None
    print(render.text(_report_in(answer, is_trace=trace is not None, url=server.url)), end="")


def _report_in(answer: bytes, *, is_trace: bool, url: str) -> "Report":
    """The report that an answer is, or that a trace brings along.

    Raises:
        ResourceError: what came is neither.
    """
    import msgspec

    from freehold.observe.report import Report
    from freehold.observe.trace import report_in

    try:
        return report_in(answer) if is_trace else msgspec.json.decode(answer, type=Report)
    except NOT_JSON:
        raise ResourceError(f"{url} sent {answer[:80]!r}, which is no profile") from None
