"""Time is measured with clocks that nobody can set. The time of day is read in a few places, where it is meant."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON_SOURCES = sorted((ROOT / "src").rglob("*.py"))
NATIVE_SOURCES = sorted(path for path in (ROOT / "csrc").rglob("*") if path.suffix in {".cpp", ".h"})

WALL_CLOCKS = {
    "time": {"time", "time_ns", "localtime", "gmtime", "ctime", "asctime", "strftime", "clock_gettime"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}
MEANT = {
    "access/clocks.py": "keys expire, and budgets last a day or a month",
    "cli/bench_run.py": "files of a load test are named by when it ran",
    "cli/keys.py": "when a key was made or revoked, and whether it has expired",
    "loadtest/run.py": "when a load test ran",
    "cli/record.py": "what was recorded so long ago",
    "logs.py": "when a line was written",
    "observe/record/ring.py": "compared with times of files",
    "serve/answer.py": "when an answer was made, for its client",
    "serve/batches/batch_store.py": "batches end by a time that their clients were told",
    "serve/batches/file_store.py": "files expire, and tell when they were made",
    "serve/batches/run.py": "a batch's time is up when its record says so",
    "serve/live/board.py": "when a point was taken, for people; measured once, so that points keep their order",
    "serve/recording.py": "measured once a run, so that times on the monotonic clock can be told to people",
    "serve/service.py": "when the model was loaded, for clients",
    "serve/tracing/tracing.py": "spans have Unix time; read once a request, so that its moments keep their order",
    "text/template.py": "a template may ask for today's date",
    "files/digests.py": "compared with times of files",
}
"""Where the time of day is read, and why."""


def wall_clock_reads(source: str) -> Iterator[int]:
    """Lines that name a clock of the time of day, however it was imported."""
    names: dict[str, str] = {}  # what a local name stands for
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if node.module == "time" and alias.name in WALL_CLOCKS["time"]:
                    yield node.lineno
                names[alias.asname or alias.name] = alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).split(".")[-1]
            if node.attr in WALL_CLOCKS.get(names.get(owner, owner), set()):
                yield node.lineno


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.time()",
        "import time as t\nx = t.time_ns",
        "from time import time",
        "from time import time_ns as now",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import datetime as d\nd.utcnow()",
        "from datetime import date\ndate.today()",
    ],
)
def test_the_scan_sees_each_spelling(source: str) -> None:
    assert list(wall_clock_reads(source))


@pytest.mark.parametrize("source", ["import time\ntime.monotonic()", "loop.time()", "import time\ntime.process_time()"])
def test_the_scan_leaves_other_clocks_alone(source: str) -> None:
    assert not list(wall_clock_reads(source))


def test_only_named_places_read_the_time_of_day() -> None:
    package = ROOT / "src" / "freehold"
    reading = {
        str(path.relative_to(package))
        for path in PYTHON_SOURCES
        if list(wall_clock_reads(path.read_text(encoding="utf-8")))
    }
    assert reading <= set(MEANT), "measure with time.monotonic; the time of day jumps"


def test_native_code_reads_no_time_of_day() -> None:
    pattern = r"system_clock|gettimeofday|CLOCK_REALTIME|\btime\s*\(\s*(NULL|nullptr|0)\s*\)"
    assert not [str(path.relative_to(ROOT)) for path in NATIVE_SOURCES if re.search(pattern, path.read_text())]
