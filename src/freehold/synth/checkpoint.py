"""Write a synthetic model to disk, tensor by tensor, in pieces: memory doesn't grow with the model."""

import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from freehold.arch.spec import Slot
from freehold.errors import ConfigError
from freehold.files.disk import check_free_space, disk_errors
from freehold.files.gguf_write import write_gguf
from freehold.files.quants import quantize
from freehold.files.safetensors_write import write_checkpoint_tensors
from freehold.files.tensor_source import TensorSource
from freehold.files.tensors import DType
from freehold.synth import gguf_model, hugging_face
from freehold.synth.sizes import SynthConfig, TensorPlan, tensor_plans
from freehold.synth.vocabulary import make_vocabulary
from freehold.synth.weights import values

HF_DTYPES = (DType.F32, DType.F16, DType.BF16)
GGUF_DTYPES = (*HF_DTYPES, DType.Q8_0, DType.Q4_1, DType.Q4_0)

OnBytes = Callable[[int, int], None]


def write_checkpoint(
    config: SynthConfig,
    out: Path,
    *,
    format: Literal["gguf", "hf"],
    dtype: DType,
    seed: int = 0,
    max_shard_bytes: int = 5_000_000_000,
    on_progress: OnBytes = lambda _done, _total: None,
) -> None:
    """Write random weights with configuration, tokenizer and chat template: a model that can be served.

    The same seed gives the same weights in both formats, up to the rounding of `dtype`. Nothing appears under `out`
    until all is written.

    Arguments:
        out: the GGUF file, or the directory for ``hf``; must not exist.
        dtype: of the matrices; ``hf`` takes F32, F16 and BF16, ``gguf`` also Q8_0, Q4_1 and Q4_0.
        max_shard_bytes: ``hf``: above it, weights are divided over several files with an index.
        on_progress: called with the bytes of tensor data written so far and in all.

    Raises:
        ConfigError: `out` exists, or `dtype` doesn't go with `format`.
        ResourceError: the disk is too small, or `out` can't be written.
    """
    allowed = HF_DTYPES if format == "hf" else GGUF_DTYPES
    if dtype not in allowed:
        names = ", ".join(known.name for known in allowed)
        what = "a directory of safetensors" if format == "hf" else "a GGUF file"
        raise ConfigError(
            f"{what} can't have {dtype.name} here; it can have {names}"
            + (f". For {dtype.name}, name a file that ends in .gguf." if dtype in GGUF_DTYPES else ".")
        )
    if out.exists():
        raise ConfigError(f"{out} exists already; name another place, or remove it first")
    sources = _sources(config, format, dtype, seed)
    total = sum(source.num_bytes for source in sources)
    done = 0

    def on_bytes(count: int) -> None:
        nonlocal done
        done += count
        on_progress(done, total)

    unfinished = out.with_name(f".{out.name}.{secrets.token_hex(8)}")
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        check_free_space(out.parent, total)
        try:
            vocabulary = make_vocabulary(config.vocab_size)
            if format == "hf":
                unfinished.mkdir()
                write_checkpoint_tensors(unfinished, sources, max_shard_bytes, on_bytes)
                hugging_face.write_side_files(unfinished, config, dtype, vocabulary)
            else:
                write_gguf(unfinished, gguf_model.metadata(config, dtype, vocabulary, seed), sources, on_bytes)
            unfinished.rename(out)
        except BaseException:
            _remove(unfinished)
            raise


def _sources(config: SynthConfig, format: Literal["gguf", "hf"], dtype: DType, seed: int) -> list[TensorSource]:
    sources = []
    for plan in tensor_plans(config):
        name = hugging_face.tensor_name(plan) if format == "hf" else gguf_model.tensor_name(plan)
        stored = dtype if format == "hf" else gguf_model.stored_dtype(plan, dtype)
        reorder = format == "gguf" and gguf_model.has_interleaved_rows(config, plan)
        sources.append(TensorSource(name, stored, plan.shape, _pieces(config, plan, seed, stored, reorder=reorder)))
    factors = gguf_model.rope_factors(config) if format == "gguf" else None
    if factors is not None:
        sources.append(
            TensorSource.of(gguf_model.ROPE_FACTORS_NAME, DType.F32, factors.shape, quantize(factors, DType.F32))
        )
    return sources


def _pieces(
    config: SynthConfig, plan: TensorPlan, seed: int, dtype: DType, *, reorder: bool
) -> Callable[[], Iterator[NDArray[np.uint8]]]:
    def generate() -> Iterator[NDArray[np.uint8]]:
        if not reorder:
            for piece in values(config, plan, seed):
                yield quantize(piece, dtype)
            return
        # A reordered matrix is made whole: queries and keys are the small ones.
        matrix = np.concatenate(list(values(config, plan, seed))).reshape(plan.shape)
        num_heads = config.num_heads if plan.slot is Slot.Q else config.num_kv_heads
        yield quantize(gguf_model.interleaved(matrix, num_heads), dtype)

    return generate


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
