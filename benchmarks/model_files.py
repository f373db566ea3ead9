"""The model files that a comparison runs on, made when they are missing.

``q4_1`` is the default model as it is fetched. Another type, such as ``q4_0``, is the same made by llama.cpp.
``PRESET:TYPE``, as in ``qwen3-0.6b:q4_0``, has random weights in the shape of a known model. Else a path.
"""

import subprocess
from pathlib import Path

from freehold import resolve
from freehold.errors import ModelNotFoundError
from freehold.files import store
from freehold.files.tensors import DType
from freehold.settings import DEFAULT_MODEL
from freehold.synth import PRESETS, write_checkpoint

DEFAULT_TYPE = "q4_1"
QUANTIZED_TYPES = ("f32", "bf16", "q4_0", "q4_k_m", "q8_0")


def model_file(name: str, llamacpp: Path | None) -> Path:
    """The file of a name.

    Args:
        llamacpp: interpreter with llama-cpp-python; needed for the default model in other types.
    """
    home = resolve.home_directory()
    made = home / "benchmarks"
    if name == DEFAULT_TYPE:
        return _default(home)
    if name in QUANTIZED_TYPES:
        return _quantized(name, _default(home), made / f"{DEFAULT_MODEL}.{name}.gguf", llamacpp)
    preset, _, dtype = name.partition(":")
    if preset in PRESETS and dtype.upper() in DType.__members__:
        return _synthetic(preset, DType[dtype.upper()], made / f"{preset}.{dtype.lower()}.gguf")
    if not Path(name).is_file():
        raise SystemExit(
            f"{name!r} is no file, no type of the default model ({DEFAULT_TYPE}, {', '.join(QUANTIZED_TYPES)}) and no "
            f"PRESET:TYPE with a preset of {', '.join(PRESETS)}"
        )
    return Path(name)


def _default(home: Path) -> Path:
    try:
        return store.locate(DEFAULT_MODEL, home)
    except ModelNotFoundError:
        return store.pull(DEFAULT_MODEL, home, lambda _progress: None)


def _quantized(file_type: str, source: Path, out: Path, llamacpp: Path | None) -> Path:
    if not out.exists():
        if llamacpp is None:
            raise SystemExit(f"{file_type} is made by llama.cpp; name an interpreter that has it with --llamacpp")
        out.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([llamacpp, Path(__file__).parent / "quantize_llamacpp.py", source, out, file_type], check=True)
    return out


def _synthetic(preset: str, dtype: DType, out: Path) -> Path:
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = out.with_suffix(".partial")
        write_checkpoint(PRESETS[preset], partial, format="gguf", dtype=dtype, seed=0)
        partial.rename(out)
    return out
