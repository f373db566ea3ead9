"""Random tensors of every storage type, straight from random bytes: every bit pattern of the quants occurs."""

import numpy as np
from numpy.typing import NDArray

from freehold.files.tensors import DType, Tensor

HALF_FIELDS = {  # byte offsets of the float16 scales in a block
    DType.Q4_0: (0,),
    DType.Q4_1: (0, 2),
    DType.Q5_0: (0,),
    DType.Q5_1: (0, 2),
    DType.Q8_0: (0,),
    DType.Q2_K: (80, 82),
    DType.Q3_K: (108,),
    DType.Q4_K: (0, 2),
    DType.Q5_K: (0, 2),
    DType.Q6_K: (208,),
    DType.IQ4_NL: (0,),
    DType.IQ4_XS: (0,),
}
PLAIN = (DType.F32, DType.F16, DType.BF16)


def random_tensor(dtype: DType, num_outputs: int, num_inputs: int, seed: int = 0) -> Tensor:
    """Weights of shape (outputs, inputs), moderate in magnitude: ordinary scales, all else random."""
    rng = np.random.default_rng([seed, num_outputs, num_inputs])
    if dtype in PLAIN:
        values = rng.standard_normal((num_outputs, num_inputs), dtype=np.float32) * np.float32(num_inputs**-0.5)
        raw = _plain_bytes(values, dtype)
    else:
        blocks = num_outputs * num_inputs // dtype.block_elements
        raw = rng.integers(0, 256, (blocks, dtype.block_bytes), dtype=np.uint8)
        for offset in HALF_FIELDS[dtype]:
            scales = (rng.uniform(0.005, 0.02, blocks) * rng.choice([-1, 1], blocks)).astype(np.float16)
            raw[:, offset : offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    return Tensor(name="w", dtype=dtype, shape=(num_outputs, num_inputs), data=np.ascontiguousarray(raw).reshape(-1))


def _plain_bytes(values: NDArray[np.float32], dtype: DType) -> NDArray[np.uint8]:
    if dtype is DType.F32:
        return values.view(np.uint8)
    if dtype is DType.F16:
        return values.astype(np.float16).view(np.uint8)
    return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)


def input_sizes(dtype: DType) -> list[int]:
    """Numbers of inputs that the type allows, as odd as it allows."""
    if dtype in PLAIN:
        return [1, 33, 100]
    return [dtype.block_elements, 3 * dtype.block_elements]
