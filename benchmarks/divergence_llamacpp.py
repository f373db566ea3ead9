"""llama.cpp's logits after every token of given texts, through the C API of llama-cpp-python.

Needs nothing but ``pip install llama-cpp-python==0.3.36``; `divergence.py` calls it with the interpreter that has it:

    python benchmarks/divergence_llamacpp.py MODEL.gguf texts.json OUT_DIR

texts.json maps names to lists of token ids; OUT_DIR gets one float32 (tokens, V) array NAME.npy for each.
"""

import argparse
import ctypes
import json
from pathlib import Path

import llama_cpp
import numpy as np


def forced_logits(model, token_ids: list[int], num_threads: int) -> np.ndarray:
    """Logits after every token, with llama.cpp's defaults otherwise (int8 activations, float16 KV)."""
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = len(token_ids)
    params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = num_threads
    context = llama_cpp.llama_init_from_model(model, params)
    vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    logits = np.empty((len(token_ids), vocab_size), dtype=np.float32)
    batch = llama_cpp.llama_batch_init(512, 0, 1)
    for start in range(0, len(token_ids), 512):
        chunk = token_ids[start : start + 512]
        batch.n_tokens = len(chunk)
        for index, token_id in enumerate(chunk):
            batch.token[index] = token_id
            batch.pos[index] = start + index
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = 0
            batch.logits[index] = 1
        if llama_cpp.llama_decode(context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        for index in range(len(chunk)):
            row = llama_cpp.llama_get_logits_ith(context, index)
            logits[start + index] = np.ctypeslib.as_array(row, shape=(vocab_size,))
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    return logits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()

    quiet = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(str(arguments.model).encode(), params)
    if not model:
        raise SystemExit(f"llama.cpp can't load {arguments.model}")
    for name, token_ids in json.loads(arguments.texts.read_text()).items():
        np.save(arguments.out_dir / f"{name}.npy", forced_logits(model, token_ids, arguments.threads))
    llama_cpp.llama_model_free(model)


if __name__ == "__main__":
    main()
