"""What an installation takes: a fresh virtual environment for each requirement, its size and how long pip took.

    python benchmarks/installed.py . [llama-cpp-python==0.3.36 …]

Sizes are of what pip added, byte code included, without the environment itself.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def size_bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def install(requirement: str) -> tuple[int, float]:
    """Bytes and seconds."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / "venv"
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        empty_bytes = size_bytes(home)
        started_s = time.perf_counter()
        subprocess.run([home / "bin/python", "-m", "pip", "install", "--quiet", requirement], check=True)
        return size_bytes(home) - empty_bytes, time.perf_counter() - started_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requirements", nargs="+", help="as pip takes them; a folder for what it holds")
    for requirement in parser.parse_args().requirements:
        num_bytes, seconds = install(requirement)
        print(f"{requirement}: {num_bytes / 1e6:.0f} MB, {seconds:.0f} s")


if __name__ == "__main__":
    main()
