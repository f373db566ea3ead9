"""Does the native code of this installation compute what it should on this processor?"""

import tempfile
from pathlib import Path

from freehold.errors import FreeholdError
from freehold.files.tensors import DType
from freehold.llm import LLM
from freehold.synth import PRESETS, write_checkpoint
from freehold.text.params import SamplingParams

NUM_TOKENS = 8


class SelfCheckError(FreeholdError):
    """The native code computes something else than the reference."""


def check_native(isa: str) -> None:
    """Let a small random model answer on the native backend and on the slow, obvious one, and compare.

    Args:
        isa: instruction-set level to check.

    Raises:
        SelfCheckError: the answers differ.
        UserError: the extension doesn't load.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.gguf"
        write_checkpoint(PRESETS["tiny"], path, format="gguf", dtype=DType.F32)
        native = _answer(path, backend="cpu", isa=isa)
        expected = _answer(path, backend="reference")
    if native != expected:
        raise SelfCheckError(f"with {isa} it answers {native}, the reference {expected}; please report this")


def _answer(model: Path, **settings: str) -> tuple[int, ...]:
    params = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)
    with LLM(model, kv_cache_dtype="f32", kv_cache_memory_bytes="16M", max_num_seqs=1, **settings) as llm:
        return llm.generate("Freehold", params)[0].token_ids
