"""llama.cpp behind `engine_worker`, through its C API as llama-cpp-python binds it.

    PYTHON benchmarks/engine_llamacpp.py MODEL.gguf [--threads 2]

Needs nothing but ``pip install llama-cpp-python==0.3.36``. Its defaults, with flash attention: float16 keys and values,
512 tokens of a prompt in a micro-batch. A prompt is one call of `llama_decode`, a step of all answers another.
"""

import argparse
import ctypes
import importlib.metadata
import time
from pathlib import Path
from typing import Any

import llama_cpp
from engine_worker import serve

_KV_UNIT = 256  # cells of a sequence come in multiples of this


class Sequences:
    """A context for so many answers of some length, and what it holds."""

    def __init__(self, model: Any, num_sequences: int, num_prompt: int, num_tokens: int, num_threads: int) -> None:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = num_sequences * -(-num_tokens // _KV_UNIT) * _KV_UNIT
        params.n_seq_max = num_sequences
        params.n_batch = max(num_prompt, num_sequences)
        params.n_threads = params.n_threads_batch = num_threads
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        self._context = llama_cpp.llama_init_from_model(model, params)
        if not self._context:
            raise SystemExit(f"llama.cpp has no room for {num_sequences} sequences of {num_tokens} tokens")
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(params.n_batch, 0, 1)
        self._greedy = llama_cpp.llama_sampler_init_greedy()
        self._prompts: list[list[int]] = []
        self._firsts: list[int] = []

    def start(self, prompts: list[list[int]]) -> list[int]:
        """Leave nothing but the prompts' keys and values. Returns each one's next token."""
        if prompts == self._prompts:
            for sequence, prompt in enumerate(prompts):
                llama_cpp.llama_memory_seq_rm(self._memory, sequence, len(prompt), -1)
            return self._firsts
        llama_cpp.llama_memory_clear(self._memory, False)
        self._firsts = []
        for sequence, prompt in enumerate(prompts):
            for index, token in enumerate(prompt):
                self._place(index, token, index, sequence, is_last=index == len(prompt) - 1)
            self._decode(len(prompt))
            self._firsts.append(self._sample(len(prompt) - 1))
        self._prompts = prompts
        return self._firsts

    def step(self, tokens: list[int], pos: int) -> list[int]:
        """One more token for each sequence."""
        for sequence, token in enumerate(tokens):
            self._place(sequence, token, pos, sequence, is_last=True)
        self._decode(len(tokens))
        return [self._sample(index) for index in range(len(tokens))]

    def _place(self, index: int, token: int, pos: int, sequence: int, *, is_last: bool) -> None:
        self._batch.token[index] = token
        self._batch.pos[index] = pos
        self._batch.n_seq_id[index] = 1
        self._batch.seq_id[index][0] = sequence
        self._batch.logits[index] = is_last

    def _decode(self, num_tokens: int) -> None:
        self._batch.n_tokens = num_tokens
        if llama_cpp.llama_decode(self._context, self._batch) != 0:
            raise SystemExit("llama_decode failed")

    def _sample(self, index: int) -> int:
        return llama_cpp.llama_sampler_sample(self._greedy, self._context, index)


class LlamaCpp:
    """A model, with a context for each shape of work."""

    def __init__(self, path: Path, num_threads: int) -> None:
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        started_s = time.perf_counter()
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self._model:
            raise SystemExit(f"llama.cpp can't load {path}")
        self._load_s = time.perf_counter() - started_s
        self._num_threads = num_threads
        self._sequences: dict[tuple[int, int, int], Sequences] = {}

    def describe(self) -> dict[str, Any]:
        return {
            "version": importlib.metadata.version("llama-cpp-python"),
            "system": llama_cpp.llama_print_system_info().decode().strip(),
            "load_s": self._load_s,
        }

    def run(self, prompts: list[list[int]], num_output: int) -> dict[str, float]:
        num_prompt = len(prompts[0])
        shape = (len(prompts), num_prompt, num_prompt + num_output)
        if shape not in self._sequences:
            self._sequences[shape] = Sequences(self._model, *shape, self._num_threads)
        sequences = self._sequences[shape]
        started_s = time.perf_counter()
        tokens = sequences.start(prompts)
        begin_s = time.perf_counter()
        for index in range(num_output - 1):
            tokens = sequences.step(tokens, num_prompt + index)
        end_s = time.perf_counter()
        num_decoded = len(prompts) * (num_output - 1)
        return {"prefill_s": begin_s - started_s, "decode_s": end_s - begin_s, "num_decoded": num_decoded}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    quiet = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    serve(LlamaCpp(arguments.model, arguments.threads))


if __name__ == "__main__":
    main()
