"""The page's files over HTTP: who may have them, under which policy, and that browsers keep them."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.running import Server, Start

from freehold.serve.live import files

FOLDER = Path(files.__file__).parent / "page"
NAMES = sorted(path.name for path in FOLDER.iterdir())
MEDIA = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def references(text: str) -> Iterator[str]:
    """Names of files that a file of the page loads."""
    yield from re.findall(r'(?:src|href)="page/([^"]+)"', text)
    yield from re.findall(r'from "\./([^"]+)"', text)


def test_everything_that_is_there_is_loaded_and_nothing_else_is() -> None:
    loaded, left = set[str](), ["index.html"]
    while left:
        name = left.pop()
        loaded.add(name)
        left += set(references((FOLDER / name).read_text())) - loaded
    assert loaded == set(NAMES)


def test_files_need_no_key_and_have_no_data(start: Start) -> None:
    server = start(api_keys=("operators-key",))
    index = server.http.get("/")
    assert (index.status_code, index.text) == (200, (FOLDER / "index.html").read_text())
    for name in NAMES:
        answer = server.http.get(f"/page/{name}")
        assert (answer.status_code, answer.content) == (200, (FOLDER / name).read_bytes())
        assert answer.headers["content-type"] == f"{MEDIA[Path(name).suffix]}; charset=utf-8"
    assert server.http.get("/debug/live").status_code == 401


@pytest.mark.parametrize("path", ["/", "/page/main.js", "/page/base.css"])
def test_nothing_foreign_and_nothing_inline_may_run(server: Server, path: str) -> None:
    policy = server.http.get(path).headers["content-security-policy"]
    allowed = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert allowed["default-src"] == "'none'"
    assert {allowed[name] for name in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
    assert {allowed[name] for name in ("base-uri", "form-action", "frame-ancestors", "trusted-types")} == {"'none'"}
    assert server.http.get(path).headers["x-content-type-options"] == "nosniff"


def test_what_a_browser_has_is_not_sent_again(server: Server) -> None:
    first = server.http.get("/page/main.js")
    for tags in (first.headers["etag"], f'"other", W/{first.headers["etag"]}'):
        again = server.http.get("/page/main.js", headers={"If-None-Match": tags})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
    assert server.http.get("/page/main.js", headers={"If-None-Match": '"other"'}).status_code == 200
    assert first.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("name", ["nothing.js", "files.py", "..%2ffiles.py", "%2e%2e%2f%2e%2e%2fserver.py", "main.js/"])
def test_no_other_files_can_be_had(server: Server, name: str) -> None:
    assert server.http.get(f"/page/{name}").status_code == 404


def test_no_file_makes_markup_of_text() -> None:
    for name in NAMES:
        text = (FOLDER / name).read_text()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?://(?!www\.w3\.org/)",
            text,
        ), name
    index = (FOLDER / "index.html").read_text()
    assert not re.search(r"<style|<script(?![^>]*\bsrc=)|\sstyle=|\son[a-z]+=", index)
