"""The server that is tested, as a URL says it."""

import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from freehold.errors import ConfigError, shown


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go.

    Attributes:
        base_path: of the URL, without ``/v1``.
        tls: None for plain HTTP.
        headers: that every request carries, as they stand on the wire.
    """

    host: str
    port: int
    base_path: str
    tls: ssl.SSLContext | None
    headers: bytes

    @property
    def authority(self) -> str:
        """Host and port as the header ``Host`` has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """Of the server, without ``/v1``."""
        return f"http{'s' if self.tls else ''}://{self.authority}{self.base_path}"

    def head(self, method: str, path: str, length: int, extra: str = "") -> bytes:
        """The head of a request.

        Args:
            length: of the body, in bytes.
            extra: further header lines.
        """
        text = f"{method} {self.base_path}{path} HTTP/1.1\r\nHost: {self.authority}\r\n{extra}"
        if method == "POST":
            text += f"Content-Type: application/json\r\nContent-Length: {length}\r\n"
        return text.encode("latin-1") + self.headers + b"\r\n"


def read_target(url: str, key: str = "", headers: tuple[str, ...] = (), *, is_insecure: bool = False) -> Target:
    """The target that a URL means, with or without ``/v1`` at its end.

    Args:
        key: sent as a bearer token unless empty.
        headers: further ones, as ``Name=value``.
        is_insecure: certificates aren't checked.

    Raises:
        ConfigError: no HTTP URL, one with parts that requests would lose, or no header.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise ConfigError(f"--base-url can't be {shown(url)}: it is http://host:port or https://host of a server")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            "--base-url can't hold a user or a password; send them as a header: --header 'Authorization=Basic …'"
        )
    if parts.query or parts.fragment:
        kind = "a query (?…)" if parts.query else "a fragment (#…)"
        raise ConfigError(f"--base-url can't end in {kind}: requests put their own paths behind it; leave that out")
    lines = [f"Authorization: Bearer {key}"] if key else []
    for header in headers:
        name, sign, value = header.partition("=")
        if not sign or not name.strip() or any(char in header for char in ":\r\n\0"):
            raise ConfigError(f"--header can't be {shown(header)}; write it as Name=value")
        lines.append(f"{name.strip()}: {value.strip()}")
    try:
        encoded = "".join(f"{line}\r\n" for line in lines).encode("latin-1")
    except UnicodeEncodeError:
        raise ConfigError("headers and keys hold Latin-1 characters only") from None
    tls = None
    if parts.scheme == "https":
        tls = ssl.create_default_context()
        if is_insecure:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
    path = parts.path.rstrip("/").removesuffix("/v1")
    return Target(parts.hostname, port or (443 if tls else 80), path, tls, encoded)
