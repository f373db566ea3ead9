"""Another format of a model file, made by llama.cpp's quantizer from a dequantized copy.

    PYTHON benchmarks/quantize_llamacpp.py MODEL.gguf OUT.gguf q4_0

Needs nothing but ``pip install llama-cpp-python==0.3.36``.
"""

import argparse
import ctypes
from pathlib import Path

import llama_cpp

FILE_TYPES = {
    "f32": llama_cpp.LLAMA_FTYPE_ALL_F32,
    "bf16": llama_cpp.LLAMA_FTYPE_MOSTLY_BF16,
    "q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0,
    "q4_k_m": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M,
    "q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
}


def quantize(source: Path, out: Path, file_type: str) -> None:
    """Write `source` in another type."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = FILE_TYPES[file_type]
    params.allow_requantize = True
    if llama_cpp.llama_model_quantize(str(source).encode(), str(out).encode(), ctypes.byref(params)) != 0:
        raise SystemExit(f"llama.cpp can't make {out} of {source}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("type", choices=sorted(FILE_TYPES))
    arguments = parser.parse_args()
    quiet = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    plain = arguments.out.with_suffix(".f32")
    partial = arguments.out.with_suffix(".partial")
    quantize(arguments.model, plain, "f32")
    quantize(plain, partial, arguments.type)
    plain.unlink()
    partial.rename(arguments.out)


if __name__ == "__main__":
    main()
