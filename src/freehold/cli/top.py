"""``freehold top``: a running server in a terminal, as its live page shows it."""

import sys
import time
from typing import TYPE_CHECKING

import click

from freehold import resolve
from freehold.errors import FreeholdError, ResourceError
from freehold.foreign_json import NOT_JSON

if TYPE_CHECKING:
    from freehold.cli.remote_server import RemoteServer
    from freehold.cli.screen import Screen
    from freehold.cli.top_frame import Past
    from freehold.serve.live.schema import LiveAnswer

REFRESH_S = 1.0
TIMEOUT_S = 10.0


@click.command()
@click.option("--url", help="Of a running server. Default: the one that would run here.")
@click.option(
    "--api-key",
    metavar="KEY",
    help="A key for metrics; default: the first in FREEHOLD_API_KEY. Other users of the machine see flags.",
)
@click.option("--once", is_flag=True, help="Print one frame and stop.")
@click.option("--json", "as_json", is_flag=True, help="Print what the server answers and stop.")
def top(url: str | None, api_key: str | None, once: bool, as_json: bool) -> None:
    """Watch a running server: what limits it, requests, latencies, KV cache, keys. Ctrl-C ends it."""
    from freehold.cli.remote_server import RemoteServer, local_url

    server = RemoteServer(url or local_url(), api_key or resolve.client_key(), TIMEOUT_S)
    if as_json:
        print(_fetch(server, 0.0).decode())
        return
    from freehold.cli.screen import Screen, text_of
    from freehold.cli.top_frame import Past, frame

    past = Past()
    answer = _read(server, past)  # before the screen is taken: errors stay readable
    screen = Screen()
    if once or not screen.is_terminal:
        # A file or program is given all of it, in the width of a terminal.
        width, _ = screen.size
        for line in frame(answer, past, width, sys.maxsize, plain=screen.is_plain):
            print(text_of(line, width))
        return
    _watch(screen, server, past, answer)


def _watch(screen: "Screen", server: "RemoteServer", past: "Past", answer: "LiveAnswer") -> None:
    """Draw once a second. A server that goes away may come again."""
    from freehold.cli.top_frame import frame

    trouble = ""
    try:
        with screen.taken():
            while True:
                width, height = screen.size
                screen.draw(frame(answer, past, width, height, plain=screen.is_plain, url=server.url, trouble=trouble))
                time.sleep(REFRESH_S)
                try:
                    answer, trouble = _read(server, past), ""
                except FreeholdError as error:
                    trouble = str(error)
    except KeyboardInterrupt:
        return  # it is how one leaves


def _read(server: "RemoteServer", past: "Past") -> "LiveAnswer":
    """The next answer, added to the past.

    Raises:
        ResourceError: no server, or one that doesn't tell.
        RequestError: it wants a key, or another one.
    """
    import msgspec

    from freehold.serve.live.schema import LiveAnswer

    body = _fetch(server, past.cursor)
    try:
        answer = msgspec.json.decode(body, type=LiveAnswer)
    except NOT_JSON:
        raise ResourceError(
            f"{server.url} sent {body[:60]!r}, which this version can't read; ask a Freehold server of the same version"
        ) from None
    past.add(answer)
    return answer


def _fetch(server: "RemoteServer", since_s: float) -> bytes:
    with server.request("GET", f"/debug/live?since={since_s!r}", None) as response:
        return response.read()
