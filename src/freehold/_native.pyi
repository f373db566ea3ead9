"""The native module, as Python sees it. Arrays are C-contiguous."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_Logprobs = tuple[float, int, tuple[tuple[int, float], ...]]
_Row = tuple[list[int], list[int], NDArray[np.float32] | None, bool, list[_Logprobs], list[_Logprobs]]

# As the fields of freehold.backends.base.DeviceProfile.
_Profile = tuple[list[str], int, NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], NDArray[np.int64], int, int]

class StepRefused(Exception): ...  # noqa: N818

def available_isas() -> list[str]: ...
def has_integer_scales(isa: str) -> bool: ...
def packed_bytes(
    slot: str,
    source: str,
    num_outputs: int,
    num_inputs: int,
    integer_scales: bool = False,
    tied_embeddings: bool = False,
) -> int: ...
def packing_description(integer_scales: bool = False) -> str: ...
def chunk_checksums(data: NDArray[np.uint8]) -> NDArray[np.uint64]: ...

class Builder:
    @staticmethod
    def make(
        vocab_size: int,
        hidden_size: int,
        norm_eps: float,
        tied_embeddings: bool,
        arena_bytes: int,
        num_threads: int,
        integer_scales: bool = False,
    ) -> Builder: ...
    def add_rope(self, inv_freq: NDArray[np.float32], attention_factor: float) -> int: ...
    def add_layer(
        self,
        *,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        scale: float,
        window: int | None,
        rope: int,
        qk_norm: bool,
        qkv_bias: bool,
        mlp_size: int,
    ) -> None: ...
    def add_matrix(
        self,
        slot: str,
        layer: int | None,
        source: str,
        num_outputs: int,
        num_inputs: int,
        data: NDArray[np.uint8],
        order: NDArray[np.int32],
    ) -> None: ...
    def add_file_matrix(
        self,
        slot: str,
        layer: int | None,
        source: str,
        num_outputs: int,
        num_inputs: int,
        place: tuple[int, int, int],
        order: NDArray[np.int32],
    ) -> None: ...
    def pack(self) -> tuple[int, int] | None: ...
    def read(self, descriptor: int, start: int, checksums: NDArray[np.uint64]) -> str | None: ...
    def packed_weights(self) -> NDArray[np.uint8]: ...
    @property
    def packing_s(self) -> float: ...
    def set_vector(self, slot: str, layer: int | None, values: NDArray[np.float32]) -> None: ...
    def layouts(self) -> list[str]: ...
    def open(
        self,
        *,
        isa: str,
        num_blocks: int,
        block_size: int,
        max_rows: int,
        max_tokens: int,
        num_threads: int,
        kv_dtype: str,
        int8: bool,
    ) -> Device: ...

class Device:
    def submit(
        self,
        step_id: int,
        columns: NDArray[np.int64],
        rules: NDArray[np.float64],
        token_ids: NDArray[np.int32],
        block_ids: NDArray[np.int32],
        more_ids: NDArray[np.int32],
        biases: NDArray[np.float64],
    ) -> None: ...
    def sample(self, step_id: int, rows: Sequence[int], counts: Sequence[int], masks: NDArray[np.uint32]) -> None: ...
    def wait(self, step_id: int) -> None: ...
    def collect(self, step_id: int) -> tuple[list[_Row], float]: ...
    def copy_blocks(self, pairs: Sequence[int]) -> None: ...
    def read_block(self, block_id: int) -> bytes: ...
    def write_block(self, block_id: int, data: bytes) -> None: ...
    def start_profile(self, max_steps: int, max_spans: int) -> None: ...
    def stop_profile(self) -> _Profile | None: ...
    def close(self) -> None: ...
    @property
    def scratch_bytes(self) -> int: ...
    @property
    def isa(self) -> str: ...

class limits:  # noqa: N801
    """What this machine can do at most; see `freehold.limits`."""

    @staticmethod
    def compute_peaks(isa: str, num_threads: int, num_bursts: int) -> list[tuple[str, int, int, float, float]]: ...
    @staticmethod
    def read_rates(isa: str, jobs: Sequence[tuple[int, int, int]], num_rounds: int) -> list[list[float]]: ...

class kernels:  # noqa: N801
    """Single kernels, for their parity tests."""

    @staticmethod
    def packed(
        source: str,
        num_outputs: int,
        num_inputs: int,
        raw: NDArray[np.uint8],
        by_groups: bool,
        integer_scales: bool = False,
    ) -> bytes: ...
    @staticmethod
    def unpack(
        source: str,
        num_outputs: int,
        num_inputs: int,
        raw: NDArray[np.uint8],
        num_threads: int,
        integer_scales: bool = False,
    ) -> NDArray[np.float32]: ...
    @staticmethod
    def linear(
        isa: str,
        source: str,
        num_outputs: int,
        raw: NDArray[np.uint8],
        x: NDArray[np.float32],
        int8: bool,
        group: int,
        strips_each: int,
        integer_scales: bool = False,
    ) -> NDArray[np.float32]: ...
    @staticmethod
    def quantize(isa: str, x: NDArray[np.float32], group: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]: ...
    @staticmethod
    def rms_norm(isa: str, x: NDArray[np.float32], weight: NDArray[np.float32], eps: float) -> NDArray[np.float32]: ...
    @staticmethod
    def silu_mul(isa: str, gate: NDArray[np.float32], up: NDArray[np.float32]) -> NDArray[np.float32]: ...
    @staticmethod
    def turn(
        isa: str,
        heads: NDArray[np.float32],
        bias: NDArray[np.float32] | None,
        norm_weight: NDArray[np.float32] | None,
        norm_eps: float,
        angles: NDArray[np.float32],
        scale: float,
    ) -> NDArray[np.float32]: ...
    @staticmethod
    def store(
        isa: str,
        keys: NDArray[np.float32],
        values: NDArray[np.float32],
        first_pos: int,
        block_ids: NDArray[np.int32],
        block_size: int,
        kv_dtype: str,
        each: int,
    ) -> NDArray[np.uint8]: ...
    @staticmethod
    def attend(
        isa: str,
        queries: NDArray[np.float32],
        keys: NDArray[np.float32],
        values: NDArray[np.float32],
        block_ids: NDArray[np.int32],
        block_size: int,
        kv_dtype: str,
        window: int | None,
        tokens_each: int,
        bf16_dot: bool,
    ) -> NDArray[np.float32]: ...
    @staticmethod
    def sample(
        isa: str,
        logits: NDArray[np.float32],
        rules: object,
        pos: int,
        context_ids: NDArray[np.int32],
        allowed: NDArray[np.uint32] | None,
    ) -> tuple[int, bool]: ...
    @staticmethod
    def logprobs(
        isa: str, logits: NDArray[np.float32], token_id: int, num_top: int
    ) -> tuple[float, int, tuple[tuple[int, float], ...]]: ...
    @staticmethod
    def digest(isa: str, logits: NDArray[np.float32]) -> int: ...
