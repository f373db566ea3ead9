"""``pip install`` into a fresh virtual environment: it works, brings a command, and what it weighs is known."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from installed import size_bytes

ROOT = Path(__file__).parents[2]
MAX_PACKAGE_BYTES = 8 << 20
"""What the wheel's files take, unpacked: native library, sources, page. A stray model, recording or build shows."""
MAX_INSTALLED_BYTES = 150_000_000
"""All that pip adds to a fresh environment, byte code included, as `benchmarks/installed.py` counts it."""
MAX_IMPORT_CPU_S = 2.0

MEASURE = """
import json, resource, sys
import freehold, freehold.cli.main, freehold.serve.server
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({"cpu_s": usage.ru_utime + usage.ru_stime, "file": freehold.__file__, "modules": sorted(sys.modules)}))
"""


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.alone
def test_wheel_in_a_fresh_environment(tmp_path: Path, record_property: Any) -> None:
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("freehold-*.whl")
    members = zipfile.ZipFile(wheel).infolist()
    names = [member.filename for member in members]
    package_bytes = sum(member.file_size for member in members)
    assert any("_native" in name for name in names)
    assert "freehold/py.typed" in names
    page = {path.name for path in (ROOT / "src/freehold/serve/live/page").iterdir()}
    assert {name.rpartition("/")[2] for name in names if name.startswith("freehold/serve/live/page/")} == page
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "csrc")) or name.endswith(".cpp")]
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    empty_bytes = size_bytes(tmp_path / "venv")
    run(python, "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    installed_bytes = size_bytes(tmp_path / "venv") - empty_bytes

    measured = json.loads(run(python, "-c", MEASURE, cwd=tmp_path))
    assert Path(measured["file"]).is_relative_to(tmp_path / "venv")
    assert not {"torch", "transformers"} & set(measured["modules"])
    command = tmp_path / "venv" / "bin" / "freehold"
    assert run(command, "--version", cwd=tmp_path).startswith("freehold 0.")
    run(command, "synth", "tiny.gguf", "--preset", "tiny", cwd=tmp_path)
    assert run(command, "run", "tiny.gguf", "Hi", "--max-tokens", "3", "--temperature", "0", cwd=tmp_path)

    print(f"\npackage {package_bytes / 1e6:.1f} MB, with dependencies {installed_bytes / 1e6:.1f} MB, ", end="")
    print(f"imports of `freehold serve` {measured['cpu_s']:.2f} s of processor time")
    record_property("installed_bytes", installed_bytes)
    assert package_bytes < MAX_PACKAGE_BYTES
    assert installed_bytes < MAX_INSTALLED_BYTES
    assert measured["cpu_s"] < MAX_IMPORT_CPU_S
