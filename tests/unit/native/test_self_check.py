"""The native code without Python: under sanitizers, on another architecture, and what its objects export."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CROSS_COMPILER = "aarch64-linux-gnu-g++"
EMULATOR = "qemu-aarch64"
AVX512 = [
    *("-mavx2", "-mfma", "-mf16c", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni"),
    "-Wno-uninitialized",
    "-Wno-maybe-uninitialized",
]
ISA_FLAGS = {
    "generic": ["-Wno-psabi"],
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": AVX512,
    "avx512bf16": [*AVX512, "-mavx512bf16"],
}


def tool(name: str) -> str:
    """A program beside the interpreter or on the path; skips the test where there is none."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def build_self_check(directory: Path, *options: str) -> Path:
    configure = [tool("cmake"), "-S", str(ROOT), "-B", str(directory), "-G", "Ninja"]
    configure += [f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", "-DFREEHOLD_SELF_CHECK=ON", "-DFREEHOLD_WERROR=ON", *options]
    for command in (configure, [tool("cmake"), "--build", str(directory), "-j", "2"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return directory / "self_check"


@pytest.mark.slow
@pytest.mark.parametrize("sanitizers", ["address,undefined", "thread"])
def test_sanitizers_find_nothing(tmp_path: Path, sanitizers: str) -> None:
    program = build_self_check(tmp_path, f"-DFREEHOLD_SANITIZE={sanitizers}")
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all well" in done.stdout


@pytest.mark.slow
def test_the_portable_path_runs_on_aarch64(tmp_path: Path) -> None:
    compiler, emulator = tool(CROSS_COMPILER), tool(EMULATOR)
    program = build_self_check(
        tmp_path,
        f"-DCMAKE_CXX_COMPILER={compiler}",
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        "-DCMAKE_EXE_LINKER_FLAGS=-static",
    )
    done = subprocess.run([emulator, program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "generic Q4_1 int8: steps agree" in done.stdout
    assert "all well" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    sorted(p for isa in ISA_FLAGS for p in (ROOT / "csrc" / isa).glob("*.cpp")),
    ids=lambda p: "-".join(p.parts[-2:]),
)
def test_instruction_sets_leak_no_shared_functions(tmp_path: Path, source: Path) -> None:
    """The linker keeps one copy of an inline function: were it an AVX-512 one, older processors would stop at it."""
    compiler, nm = tool("g++"), tool("nm")
    # unoptimized: nothing is inlined by luck
    command = [compiler, "-std=c++20", "-O0", *ISA_FLAGS[source.parent.name], "-I", str(ROOT / "csrc")]
    done = subprocess.run(
        [*command, "-c", str(source), "-o", str(tmp_path / "o")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    symbols = subprocess.run([nm, "-C", tmp_path / "o"], capture_output=True, text=True, check=True).stdout
    assert not [line for line in symbols.splitlines() if line[17:18] == "W"]  # data may be shared
