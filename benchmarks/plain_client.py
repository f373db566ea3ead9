"""One request over a connection of its own, read whole: its status, its headers, and how long that took."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. Times are those of `time.perf_counter`.

    Attributes:
        status: 0 if the connection was refused or broke.
        headers: by lower-case name.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    sent_s: float
    ended_s: float

    @property
    def seconds(self) -> float:
        return self.ended_s - self.sent_s


async def ask(port: int, method: str, path: str, fields: Mapping[str, Any] | None = None, key: str = "") -> Reply:
    """Ask a server on this machine.

    Args:
        fields: of the JSON body; None sends none.
        key: the API key, if one is needed.
    """
    content = b"" if fields is None else json.dumps(fields).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n" if content else ""
    head += f"x-api-key: {key}\r\n" if key else ""
    sent_s = time.perf_counter()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(f"{head}\r\n".encode() + content)
            answer = await reader.read()
        finally:
            writer.close()
    except OSError:
        answer = b""
    ended_s = time.perf_counter()
    status_line, _, rest = answer.partition(b"\r\n")
    lines, _, body = rest.partition(b"\r\n\r\n")
    headers = (line.decode("latin-1").partition(":") for line in lines.split(b"\r\n"))
    status = int(status_line.split()[1]) if status_line else 0
    return Reply(status, {name.lower(): value.strip() for name, _, value in headers}, body, sent_s, ended_s)
