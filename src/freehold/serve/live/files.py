"""``GET /`` and what it loads: the live page, hand-written HTML, CSS and ES modules in ``page/``.

The files hold no data, so nobody needs a key for them; what the page shows it asks the API for, with the visitor's key.
"""

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from freehold.serve.failure import HttpError

INDEX = "index.html"

_FOLDER = Path(__file__).parent / "page"
_MEDIA = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

MEDIA = tuple(_MEDIA.values())
"""Media types of the files."""

# Nothing but this server's own files, no inline code, no text made into markup, and no frame around it.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "cache-control": "no-cache",  # kept, and asked for again by its ETag: a new version shows at once
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it is answered."""

    content: bytes
    media_type: str
    etag: str


async def index(request: Request) -> Response:
    """The live page."""
    return _respond(request, INDEX)


async def page_file(request: Request) -> Response:
    """A style sheet, script or picture of the live page."""
    return _respond(request, request.path_params["name"])


def _respond(request: Request, name: str) -> Response:
    """
    Raises:
        HttpError: 404, the page has no such file.
    """
    file = _files().get(name)
    if file is None:
        raise HttpError(404, f"the live page has no file {name[:100]!a}; it begins at /", code="not_found")
    headers = {**_HEADERS, "etag": file.etag}
    if file.etag in {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}:
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)


@functools.cache
def _files() -> Mapping[str, _File]:
    """All files by name, read when the first is asked for."""
    files: dict[str, _File] = {}
    for path in _FOLDER.iterdir():
        if path.suffix in _MEDIA:
            content = path.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            files[path.name] = _File(content, f"{_MEDIA[path.suffix]}; charset=utf-8", etag)
    return files
