"""ggml's numbers for tensor types, as GGUF files have them."""

from freehold.files.tensors import DType

GGML_TYPES: dict[int, DType] = {
    0: DType.F32,
    1: DType.F16,
    2: DType.Q4_0,
    3: DType.Q4_1,
    6: DType.Q5_0,
    7: DType.Q5_1,
    8: DType.Q8_0,
    10: DType.Q2_K,
    11: DType.Q3_K,
    12: DType.Q4_K,
    13: DType.Q5_K,
    14: DType.Q6_K,
    20: DType.IQ4_NL,
    23: DType.IQ4_XS,
    30: DType.BF16,
}

TYPE_NUMBERS: dict[DType, int] = {dtype: number for number, dtype in GGML_TYPES.items()}

FOREIGN_TYPES: dict[int, tuple[str, int, int]] = {
    9: ("Q8_1", 32, 40),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}
"""Types that exist, so that their tensors' places can be checked, but that Freehold doesn't read: name, elements in a
block, bytes in a block."""
