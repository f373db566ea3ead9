"""Where the user's pip would fetch a wheel from, and how: index, mirrors, find-links, proxy and certificates.

pip is asked, in a process of its own, so that its configuration is honoured without being read twice.
"""

import ast
import ctypes
import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from freehold.errors import DownloadError

_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
_ONLY_THIS_WHEEL = ["--no-deps", "--only-binary", ":all:"]
_RESOLVE_TIMEOUT_S = 600
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded before any fork, which may hold locks


@dataclass(frozen=True, slots=True)
class WheelLink:
    """What pip chose. `sha256` is the index's word for it, if it gave one."""

    url: str
    sha256: str | None


@dataclass(frozen=True, slots=True)
class PipTransport:
    """How pip connects; None means the default.

    Attributes:
        cert: file or directory of certificate authorities.
        client_cert: file with a client certificate and its key.
        proxy: URL.
    """

    cert: str | None
    client_cert: str | None
    proxy: str | None
    timeout_s: float


def find_wheel(requirement: str) -> WheelLink:
    """Let pip resolve `requirement`, such as ``name==1.0``, to one wheel. Installs nothing.

    Raises:
        DownloadError: pip is missing or finds nothing; carries pip's own words.
    """
    # Without separate metadata on the index, pip fetches the wheel to read it; fast-deps reads that part alone.
    command = ["install", "--dry-run", "--ignore-installed", "--quiet", "--use-feature=fast-deps", "--report", "-"]
    report = _run([*command, *_ONLY_THIS_WHEEL, requirement], f"can't find {requirement}")
    try:
        info = json.loads(report)["install"][0]["download_info"]
        sha256 = info.get("archive_info", {}).get("hashes", {}).get("sha256")
        return WheelLink(url=str(info["url"]), sha256=None if sha256 is None else str(sha256))
    except (ValueError, LookupError, AttributeError, TypeError):
        raise DownloadError(
            f"pip answers in a form that isn't known: {report[:200]!r}; upgrade it with "
            f"`{sys.executable} -m pip install --upgrade pip`"
        ) from None


def read_transport() -> PipTransport:
    """Connection settings out of pip's configuration files and environment, in pip's order of precedence."""
    # Later sections win: all commands, then this command, then the environment.
    settings: dict[str, str] = {}
    sections: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in _run(["config", "list"], "can't read its configuration").splitlines():
        key, found, value = line.partition("=")
        section, _, option = key.rpartition(".")
        if found and section in sections:
            sections[section][option.removeprefix("--")] = _unquoted(value)
    for options in sections.values():
        settings |= options
    timeout = settings.get("default-timeout", settings.get("timeout", "60"))
    return PipTransport(
        cert=settings.get("cert"),
        client_cert=settings.get("client-cert"),
        proxy=settings.get("proxy"),
        timeout_s=float(timeout) if timeout.replace(".", "", 1).isdigit() else 60.0,
    )


def download_wheel(requirement: str, directory: Path) -> Path:
    """Let pip itself download the wheel into `directory`, which is empty and takes its temporary files too.

    Raises:
        DownloadError: pip can't; carries pip's own words.
    """
    command = ["download", "--quiet", "--dest", str(directory), *_ONLY_THIS_WHEEL, requirement]
    # Temporary files beside the target: /tmp may be small, and the bytes there are the only sign of progress.
    _run(command, f"can't download {requirement}", prefix=["env", f"TMPDIR={directory}"])
    wheels = list(directory.glob("*.whl"))
    if len(wheels) != 1:
        raise DownloadError(f"pip downloaded {len(wheels)} wheels for {requirement} instead of one")
    return wheels[0]


def _unquoted(value: str) -> str:
    try:
        return str(ast.literal_eval(value))
    except (ValueError, SyntaxError):
        return value


def _die_with_parent() -> None:
    """In the child: let the kernel end it with the thread that waits for it, whatever ends that one."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _run(arguments: list[str], problem: str, prefix: list[str] | None = None) -> str:
    try:
        done = subprocess.run(
            [*(prefix or []), *_PIP, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_RESOLVE_TIMEOUT_S,
            check=False,
            preexec_fn=_die_with_parent,
        )
    except subprocess.TimeoutExpired:
        raise DownloadError(f"pip {problem}: no answer in {_RESOLVE_TIMEOUT_S} s; check the network") from None
    if done.returncode == 0:
        return done.stdout
    if "No module named pip" in done.stderr:
        raise DownloadError(
            f"pip is missing from {sys.executable}, and the model comes through it; "
            f"run `{sys.executable} -m ensurepip` and try again"
        )
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines[-1:]
    raise DownloadError(f"pip {problem}: {' '.join(errors)[:500]}")
