"""Limits read from made-up /proc and /sys trees: bare machine, containers of both control-group versions."""

from pathlib import Path

import pytest

from freehold.machine import UNUSED_BYTES, read_machine

GIB = 1 << 30


def tree(root: Path, files: dict[str, str]) -> Path:
    basics = {
        "proc/meminfo": f"MemTotal: {16 * GIB // 1024} kB\nMemAvailable: {8 * GIB // 1024} kB\n",
        "proc/cpuinfo": "processor : 0\nmodel name : Made Up 3000\nflags : fpu avx2 fma f16c\n",
    }
    for name, text in {**basics, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_bare_machine(tmp_path: Path) -> None:
    machine = read_machine(tree(tmp_path, {}), {0, 1, 2})
    assert machine.num_cores == 3
    assert machine.memory_bytes == 16 * GIB
    assert machine.available_bytes == 8 * GIB
    assert machine.processor == "Made Up 3000"
    assert machine.isa_levels == ("avx2", "generic")


def test_hyperthreads_count_once(tmp_path: Path) -> None:
    siblings = {
        f"sys/devices/system/cpu/cpu{c}/topology/thread_siblings_list": f"{c % 2},{c % 2 + 2}" for c in range(4)
    }
    assert read_machine(tree(tmp_path, siblings), {0, 1, 2, 3}).num_cores == 2
    assert read_machine(tmp_path, {0, 2}).num_cores == 1


@pytest.mark.parametrize(
    ("files", "source"),
    [
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "150000 100000\n"}, "sys/fs/cgroup/a/cpu.max"),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, "sys/fs/cgroup/cpu.max"),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/job\n",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "150000",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000",
            },
            "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us",
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/not/visible/in/here\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "200000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us",
        ),
    ],
)
def test_quota_of_processor_time(tmp_path: Path, files: dict[str, str], source: str) -> None:
    machine = read_machine(tree(tmp_path, files), set(range(8)))
    assert machine.num_cores == 2
    assert source in machine.cores_from


@pytest.mark.parametrize("unlimited", ["max 100000", "", "-1 100000"])
def test_no_quota(tmp_path: Path, unlimited: str) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": unlimited}
    assert read_machine(tree(tmp_path, files), {0, 1}).num_cores == 2


@pytest.mark.parametrize(
    ("files", "gib"),
    [
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": f"{2 * GIB}\n"}, 2),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": f"{3 * GIB}",
                "sys/fs/cgroup/a/b/memory.max": "max",
            },
            3,
        ),
        ({"proc/self/cgroup": "9:memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": f"{GIB}"}, 1),
        ({"proc/self/cgroup": "9:memory:/x\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{1 << 62}"}, 16),
    ],
)
def test_memory_limit_is_the_lowest(tmp_path: Path, files: dict[str, str], gib: int) -> None:
    machine = read_machine(tree(tmp_path, files), {0})
    assert machine.memory_bytes == gib * GIB
    assert ("cgroup" in machine.memory_from) == (gib != 16)


@pytest.mark.parametrize(("name", "remedy"), [("Max address space", "ulimit -v"), ("Max data size    ", "ulimit -d")])
def test_limits_of_the_process(tmp_path: Path, name: str, remedy: str) -> None:
    head = "Limit                     Soft Limit           Hard Limit           Units\n"
    row = "{}         {}           unlimited            bytes\n"
    limited = tree(tmp_path / "a", {"proc/self/limits": head + row.format(name, 2 * GIB)})
    assert read_machine(limited, {0}).memory_bytes == 2 * GIB - (UNUSED_BYTES if "address" in name else 0)
    assert remedy in read_machine(limited, {0}).memory_from
    free = tree(tmp_path / "b", {"proc/self/limits": head + row.format(name, "unlimited")})
    assert read_machine(free, {0}).memory_bytes == 16 * GIB


def test_this_machine() -> None:
    machine = read_machine()
    assert machine.num_cores >= 1
    assert machine.memory_bytes > 0
    assert machine.isa_levels[-1] == "generic"
