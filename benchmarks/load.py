"""How long a model's weights take to be ready: packed from the model's files, and read from packed weights on disk.

    python benchmarks/load.py MODEL [--rounds 5] [--cold] [--packed FOLDER]

Both ways take turns in one process, so that they meet the same machine, after one round of each that doesn't count.
Packed bytes are compared with each other, not only timed. With `--cold` each round first asks the system to forget the
file that it is about to read. `packing` is what the threads spent on packing alone, reading not counted: it decides
whether packed weights are kept (`freehold.files.packed_cache.WORTHWHILE_S`).
"""

import argparse
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from freehold.arch import read_model
from freehold.backends.base import BackendOptions
from freehold.backends.cpu.loading import load_model
from freehold.files.model import ModelFiles, open_model
from freehold.files.packed_cache import PackedCache, list_packed
from freehold.machine import read_machine


class WatchedCache(PackedCache):
    """Notes how long packing took, and the checksums of what was packed."""

    packing_s = 0.0
    checksums: bytes = b""

    def offer(self, contents, data, checksums, packing_s) -> None:
        self.packing_s = packing_s
        self.checksums = checksums(data).tobytes()
        super().offer(contents, data, checksums, packing_s)


@dataclass
class Round:
    """Seconds of one load."""

    load_s: float
    packing_s: float
    num_bytes: int


def load(files: ModelFiles, folder: Path, num_threads: int, *, packed: bool) -> tuple[Round, WatchedCache]:
    """Load once: from packed weights, or from the model's files."""
    sources = files.weight_digests()
    cache = WatchedCache(folder, files.path, sources if packed else None, 1 << 40, always=True)
    spec, weights = read_model(files)
    options = BackendOptions(
        num_blocks=16, block_size=32, max_rows=1, max_tokens=32, num_threads=num_threads, packed=cache
    )
    started = time.monotonic()
    model = load_model(spec, weights, options)
    load_s = time.monotonic() - started
    model.device.close()
    if packed and cache.checksums:
        raise SystemExit("the packed weights were not used")
    return Round(load_s, cache.packing_s, model.weight_bytes), cache


def forget(path: Path) -> None:
    """Ask the system to drop its copy of a file, or of all files in a folder."""
    for file in (path,) if path.is_file() else path.iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def show(name: str, rounds: list[Round]) -> None:
    """One line: median and spread, and bytes a second."""
    seconds = sorted(one.load_s for one in rounds)
    middle = statistics.median(seconds)
    packing_s = statistics.median(one.packing_s for one in rounds)
    print(
        f"{name}: {middle:.2f} s ({seconds[0]:.2f} to {seconds[-1]:.2f}), {rounds[0].num_bytes / middle / 1e9:.2f} GB/s"
        + (f", packing {packing_s:.2f} s of it" if packing_s else "")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=read_machine().num_cores)
    parser.add_argument("--cold", action="store_true", help="drop the files from memory before each round")
    parser.add_argument("--packed", type=Path, help="where packed weights go; default: a folder that is removed")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="freehold-load-", dir=arguments.packed) as temporary:
        folder = Path(temporary)
        with open_model(arguments.model) as files:
            _, cache = load(files, folder, arguments.threads, packed=False)
            cache.keep(files.weight_digests())
            cache.wait()
            load(files, folder, arguments.threads, packed=True)
            (stored,) = list_packed(folder)
            from_model, from_packed = [], []
            for _ in range(arguments.rounds):
                for packed, rounds in ((False, from_model), (True, from_packed)):
                    if arguments.cold:
                        forget(stored.path if packed else arguments.model)
                    one, again = load(files, folder, arguments.threads, packed=packed)
                    if again.checksums not in (b"", cache.checksums):
                        raise SystemExit("packing twice gave other bytes")
                    rounds.append(one)
    print(f"{arguments.model.name}: {from_model[0].num_bytes / 1e6:.0f} MB packed, {arguments.threads} threads")
    show("from the model's files", from_model)
    show("from packed weights", from_packed)


if __name__ == "__main__":
    main()
