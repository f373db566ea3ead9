"""Random-weight checkpoints of any size: for parity tests, and for speed tests of models that can't be downloaded."""

from freehold.synth.checkpoint import GGUF_DTYPES, write_checkpoint
from freehold.synth.presets import PRESETS
from freehold.synth.sizes import Family, RopeScaling, SynthConfig

__all__ = ["GGUF_DTYPES", "PRESETS", "Family", "RopeScaling", "SynthConfig", "write_checkpoint"]
