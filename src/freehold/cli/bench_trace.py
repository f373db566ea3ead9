"""``freehold bench --write-trace``: a synthetic load as a file."""

import shlex
from pathlib import Path

from freehold.cli.bench_paths import writable
from freehold.loadtest.options import BenchOptions
from freehold.loadtest.run import seed_of
from freehold.loadtest.workloads.trace_writer import write_trace


def save_trace(options: BenchOptions, path: Path) -> None:
    """Write the requests of the run's first measurement.

    Raises:
        ConfigError: it can't be written, or the run's load has no times of its own.
    """
    num = write_trace(options, seed_of(options, 0, 0), writable("--write-trace", path))
    flags = f"--dataset-path {shlex.quote(str(path))} --num-prompts {num} --trace-times"
    print(f"{num} requests in {path}; send them with\nfreehold bench --dataset-name mooncake {flags}")
