"""HTTP downloads that go on where they stopped."""

import http.client
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from freehold.errors import DownloadError
from freehold.files.disk import disk_errors
from freehold.files.pip_source import PipTransport

_PIECE_BYTES = 1 << 18
_MAX_STALLS = 4
_PAUSE_S = 0.5


class RefusedError(Exception):
    """The server, or the way to it, refuses the request as such; trying the same again is no use."""


def download(url: str, partial: Path, size: int, transport: PipTransport, on_bytes: Callable[[int], None]) -> None:
    """Fetch `url` into `partial`, going on after the bytes that are there already.

    A broken connection is taken up again as long as each attempt brings something; then what came is kept for the next
    call.

    Arguments:
        size: bytes that the whole file has.
        on_bytes: called with the number of bytes in `partial`.

    Raises:
        RefusedError: an HTTP error status, or a certificate that isn't trusted.
        DownloadError: unreachable or interrupted, or larger than `size`.
        ResourceError: the disk is full.
    """
    stalls = 0
    while (have := partial.stat().st_size if partial.exists() else 0) < size:
        try:
            _fetch_rest(url, partial, have, size, transport, on_bytes)
            cause = "the connection was closed early"
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416 and have:  # the server's file is shorter than what is here: start over
                partial.unlink()
            elif error.code < 500:
                raise RefusedError(f"HTTP {error.code} {error.reason}") from None
            cause = f"HTTP {error.code} {error.reason}"
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLError):
                raise RefusedError(str(error.reason)) from None
            cause = str(error.reason)
        except (TimeoutError, ConnectionError, http.client.HTTPException, ssl.SSLError) as error:
            cause = str(error) or type(error).__name__
        now = partial.stat().st_size if partial.exists() else 0
        stalls = 0 if now > have else stalls + 1
        time.sleep(_PAUSE_S * stalls)
        if stalls >= _MAX_STALLS:
            raise DownloadError(
                f"the download from {_without_secrets(url)} stopped at {now} of {size} bytes ({cause}); "
                "check the network and run the same command again, it goes on from there"
            )


def _fetch_rest(
    url: str, partial: Path, have: int, size: int, transport: PipTransport, on_bytes: Callable[[int], None]
) -> None:
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with _opener(transport).open(request, timeout=transport.timeout_s) as response:
        resumed = response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        with partial.open("ab" if resumed else "wb") as file:
            have = have if resumed else 0
            on_bytes(have)
            while piece := response.read(_PIECE_BYTES):
                if have + len(piece) > size:
                    partial.unlink()
                    raise DownloadError(
                        f"{_without_secrets(url)} is larger than the {size} bytes of the file that Freehold knows; "
                        "what came was deleted, check where your pip is configured to look"
                    )
                with disk_errors(partial):
                    file.write(piece)
                    file.flush()
                have += len(piece)
                on_bytes(have)


def _opener(transport: PipTransport) -> urllib.request.OpenerDirector:
    context = ssl.create_default_context()
    if transport.cert is not None:
        is_directory = Path(transport.cert).is_dir()
        context.load_verify_locations(
            cafile=None if is_directory else transport.cert, capath=transport.cert if is_directory else None
        )
    if transport.client_cert is not None:
        context.load_cert_chain(transport.client_cert)
    handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=context)]
    if transport.proxy is not None:
        handlers.append(urllib.request.ProxyHandler({"http": transport.proxy, "https": transport.proxy}))
    return urllib.request.build_opener(*handlers)


def _without_secrets(url: str) -> str:
    scheme, _, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path.partition('?')[0]}"
