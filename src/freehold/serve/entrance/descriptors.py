"""File descriptors: how many connections they suffice for."""

import resource

RESERVED = 128
"""For everything but connections: engine, log, databases, files of batches."""
MOST = 1 << 16
"""No more are asked for: some systems allow a billion."""


def max_connections() -> int:
    """Connections that may be open at once. Takes the process's soft limit as far up as it may go."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    usable = most if soft == resource.RLIM_INFINITY else min(soft, most)
    return max(usable - RESERVED, usable // 2)
