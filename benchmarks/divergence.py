"""Divergence of each backend from float32 truth on real text: prose, code and chat, about 2,700 positions.

    python benchmarks/divergence.py MODEL.gguf                        # reference and cpu, every instruction set
    python benchmarks/divergence.py MODEL.gguf --only cpu-int8        # names that start so
    python benchmarks/divergence.py MODEL.gguf --kv-cache-dtype int8  # with other keys and values than bf16
    python benchmarks/divergence.py MODEL.gguf --llamacpp PYTHON      # and llama.cpp, from an interpreter that has it

The truth is transformers in float32 on the dequantized weights (`oracle.py`, needs the test extra). Prose is the first
chapter of "Pride and Prejudice", code is the standard library's `textwrap`, chat is a made-up talk in the model's own
template.
"""

import argparse
import inspect
import json
import subprocess
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
from oracle import Oracle

from freehold.arch import read_model
from freehold.backends import open_backend
from freehold.backends.base import BackendOptions
from freehold.config import KVDtypeName
from freehold.errors import ConfigError
from freehold.evals.divergence import Floats, PositionDivergence, compare, forced_logits, options_for, summarize
from freehold.files.model import open_model

TEXTS = Path(__file__).parent / "texts"
MOST_TOKENS = 1024
CHUNK_SIZE = 256
ISAS = ("avx512bf16", "avx512", "avx2", "generic")

Logits = Callable[[str], Floats]
"""From a text's name to its logits."""


def read_texts(oracle: Oracle) -> dict[str, list[int]]:
    """Token ids of each text, at most `MOST_TOKENS`."""
    tokenizer = oracle.tokenizer
    chat = json.loads((TEXTS / "chat.json").read_text())
    texts = {
        "prose": tokenizer((TEXTS / "prose.txt").read_text())["input_ids"],
        "code": tokenizer(inspect.getsource(textwrap))["input_ids"],
        "chat": tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"],
    }
    return {name: token_ids[:MOST_TOKENS] for name, token_ids in texts.items()}


def backend_configurations(
    only: str, num_threads: int, kv_dtype: KVDtypeName | None
) -> dict[str, tuple[str, BackendOptions]]:
    """Label → backend and options, for labels that start with `only`. Keys and values are `kv_dtype`, or float32 in the
    reference and bf16 in the others."""
    sizes: dict[str, Any] = {"num_positions": MOST_TOKENS, "chunk_size": CHUNK_SIZE, "num_threads": num_threads}
    chosen = sizes | {"kv_dtype": kv_dtype or "bf16"}
    found = {"reference": ("reference", options_for(**sizes, kv_dtype=kv_dtype or "f32"))}
    for activations in ("float", "int8"):
        for isa in ISAS:
            found[f"cpu-{activations}-{isa}"] = ("cpu", options_for(**chosen, activations=activations, isa=isa))
    return {label: configuration for label, configuration in found.items() if label.startswith(only)}


def backend_logits(model: Path, name: str, options: BackendOptions, texts: dict[str, list[int]]) -> dict[str, Floats]:
    """A backend's logits for every text."""
    files = open_model(model)
    backend = open_backend(name, *read_model(files), options)
    logits, step_id = {}, 0
    for text, token_ids in texts.items():
        logits[text] = np.concatenate(list(forced_logits(backend, token_ids, options, first_step_id=step_id)))
        step_id += -(-len(token_ids) // CHUNK_SIZE)
    backend.close()
    files.close()
    return logits


def llamacpp_logits(python: Path, model: Path, texts: dict[str, list[int]]) -> dict[str, Floats]:
    """llama.cpp's logits for every text, computed by another interpreter."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory)
        (out / "texts.json").write_text(json.dumps(texts))
        script = Path(__file__).parent / "divergence_llamacpp.py"
        subprocess.run([python, script, model, out / "texts.json", out], check=True)
        return {text: np.load(out / f"{text}.npy") for text in texts}


def report(label: str, truth: dict[str, Floats], other: dict[str, Floats]) -> None:
    parts: dict[str, PositionDivergence] = {text: compare(truth[text], other[text]) for text in truth}
    print(f"{label:22} {summarize(list(parts.values()))}")
    for text, part in parts.items():
        print(f"{'':8}{text:14} {summarize([part])}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--only", default="", help="start of the labels to run, such as cpu-float")
    parser.add_argument("--llamacpp", type=Path, metavar="PYTHON", help="interpreter with llama-cpp-python")
    parser.add_argument("--kv-cache-dtype", choices=get_args(KVDtypeName), help="default: f32 for reference, else bf16")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()

    oracle = Oracle(arguments.model)
    texts = read_texts(oracle)
    truth = {text: oracle.logits(token_ids) for text, token_ids in texts.items()}
    wanted = backend_configurations(arguments.only, arguments.threads, arguments.kv_cache_dtype)
    for label, (name, options) in wanted.items():
        try:
            other = backend_logits(arguments.model, name, options, texts)
        except ConfigError as error:  # an instruction set that this processor lacks
            print(f"{label:22} skipped: {error}")
            continue
        report(label, truth, other)
    if arguments.llamacpp:
        report("llama.cpp", truth, llamacpp_logits(arguments.llamacpp, arguments.model, texts))


if __name__ == "__main__":
    main()
