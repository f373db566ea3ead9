"""What this process may use of the machine: cores and memory within affinity and control groups, instruction sets."""

import math
import os
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

ISA_FLAGS: dict[str, frozenset[str]] = {
    "avx512bf16": frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "avx512_bf16"}),
    "avx512": frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"}),
    "avx2": frozenset({"avx2", "fma", "f16c"}),
}
"""Processor flags, as /proc/cpuinfo spells them, behind each instruction-set level; ``generic`` needs none."""

UNUSED_BYTES = 320 << 20
"""Address space that takes no memory: the mapped file beside the weights, libraries, stacks of threads."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Limits that defaults come from.

    Attributes:
        num_cores: physical cores that may be used, at least 1: hyperthreads of one core count once.
        cores_from: what sets `num_cores`, for people.
        memory_bytes: the lowest of the machine's memory, every control group's limit, and the process's own.
        memory_from: what sets `memory_bytes`, for people.
        available_bytes: memory of the machine that is free or can be freed now.
        processor: the processor's name for itself.
        isa_levels: instruction-set levels that the processor has, best first.
    """

    num_cores: int
    cores_from: str
    memory_bytes: int
    memory_from: str
    available_bytes: int
    processor: str
    isa_levels: tuple[str, ...]


def read_machine(root: Path = Path("/"), cpus: Set[int] | None = None) -> Machine:
    """Read the limits of this process.

    Args:
        root: where ``proc`` and ``sys`` are; tests bring their own.
        cpus: processor numbers that the process may run on; None asks the kernel.
    """
    allowed = os.sched_getaffinity(0) if cpus is None else cpus
    num_cores, cores_from = len(_physical_cores(root, allowed)), "processor affinity"
    for quota, source in _cpu_quotas(root):
        if quota < num_cores:
            num_cores, cores_from = max(1, math.ceil(quota)), source
    memory = _meminfo(root)
    memory_bytes, memory_from = memory.get("MemTotal", 0), "the machine's memory"
    for limit, source in (*_memory_limits(root), *_process_limits(root)):
        if limit < memory_bytes:
            memory_bytes, memory_from = limit, source
    processor, flags = _processor(root)
    levels = [level for level, needed in ISA_FLAGS.items() if needed <= flags]
    return Machine(
        num_cores=max(1, num_cores),
        cores_from=cores_from,
        memory_bytes=memory_bytes,
        memory_from=memory_from,
        available_bytes=memory.get("MemAvailable", 0),
        processor=processor,
        isa_levels=(*levels, "generic"),
    )


def _physical_cores(root: Path, cpus: Set[int]) -> set[str]:
    """One entry a core: the list of hyperthreads that share it, or the processor's number if the kernel doesn't say."""
    topology = (root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list" for cpu in sorted(cpus))
    return {_read(path) or path.parts[-3] for path in topology}


def _cpu_quotas(root: Path) -> Iterator[tuple[float, str]]:
    """Each control group's share of processor time, in processors."""
    for folder in _group_folders(root, ""):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit():
            yield int(quota) / int(period), f"cgroup {folder.relative_to(root)}/cpu.max"
    for folder in _group_folders(root, "cpu"):
        quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            yield int(quota) / int(period), f"cgroup {folder.relative_to(root)}/cpu.cfs_quota_us"


def _memory_limits(root: Path) -> Iterator[tuple[int, str]]:
    """Each control group's limit, in bytes."""
    for controller, name in (("", "memory.max"), ("memory", "memory.limit_in_bytes")):
        for folder in _group_folders(root, controller):
            limit = _read(folder / name)
            if limit.isdigit():
                yield int(limit), f"cgroup {folder.relative_to(root)}/{name}"


def _process_limits(root: Path) -> Iterator[tuple[int, str]]:
    """What the shell or a service manager lets this process have, in bytes."""
    for line in _read(root / "proc/self/limits").splitlines():
        for name, remedy, unused in (
            ("Max address space", "ulimit -v", UNUSED_BYTES),
            ("Max data size", "ulimit -d", 0),
        ):
            if line.startswith(name) and (limit := line.removeprefix(name).split()[0]).isdigit():
                yield max(0, int(limit) - unused), f"the process's limit, {remedy}"


def _group_folders(root: Path, controller: str) -> Iterator[Path]:
    """Folders of the process's control group and those above it; controller "" is version 2's single hierarchy."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if controller not in controllers.split(","):
            continue
        # Version 2 is mounted at the top, or under "unified" beside version 1. Inside a container the path may be the
        # host's, which isn't visible; the top then holds the container's own limits.
        mounts = ("sys/fs/cgroup", "sys/fs/cgroup/unified") if not controller else (f"sys/fs/cgroup/{controllers}",)
        for mount in mounts:
            top = root / mount
            folder = top / group.strip("/")
            yield from [folder, *(parent for parent in folder.parents if parent.is_relative_to(top))]


def _meminfo(root: Path) -> dict[str, int]:
    """/proc/meminfo, in bytes."""
    rows = (line.split() for line in _read(root / "proc/meminfo").splitlines())
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) >= 2}


def _processor(root: Path) -> tuple[str, frozenset[str]]:
    """Name and flags of the first processor."""
    fields: dict[str, str] = {}
    for line in _read(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    return fields.get("model name", "unknown processor"), frozenset(fields.get("flags", "").split())


def _read(path: Path) -> str:
    """The file's text, or "" if there is none: kernels and containers differ in what they show."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
