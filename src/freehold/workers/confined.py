"""Inside a worker: frames, and the limits that it sets itself before it sees what a stranger sent.

The kernel ends the process when it takes too much, even inside one call of C code; it may open and write no file, and
nothing of the server lives in its memory.
"""

import resource
import signal
import sys
from collections.abc import Callable


def read_frame() -> bytes:
    """The next frame. The process ends with its stdin."""
    head = sys.stdin.buffer.read(4)
    if len(head) < 4:
        sys.exit(0)
    return sys.stdin.buffer.read(int.from_bytes(head, "big"))


def reply(work: Callable[[], bytes], cpu_s: float) -> None:
    """Send what the work gives, or end within so many processor seconds.

    Args:
        work: raises nothing.
    """
    # The default action of SIGPROF ends the process, wherever it is.
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    answer = work()
    signal.setitimer(signal.ITIMER_PROF, 0)
    sys.stdout.buffer.write(len(answer).to_bytes(4, "big") + answer)
    sys.stdout.buffer.flush()


def confine(memory_bytes: int) -> None:
    """Give up, for good, what a worker never needs.

    Args:
        memory_bytes: address space beyond what the process has now.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's; this process ends with its stdin
    with open("/proc/self/statm", encoding="ascii") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    for name, limit in (
        (resource.RLIMIT_AS, used + memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),  # no file grows, pipes don't count
        (resource.RLIMIT_NOFILE, 0),  # no new descriptor
        (resource.RLIMIT_NPROC, 0),
    ):
        resource.setrlimit(name, (limit, limit))
