"""What the dense decoder families have in common: sizes, and the names of their tensors.

A family file picks from here and adds what is its own. Nothing here knows which family asks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from freehold.arch.keys import Keys
from freehold.arch.rules import RowOrder, TensorRule, global_shapes, layer_shapes
from freehold.arch.spec import AttentionSpec, LayerSpec, MlpSpec, ModelSpec, RopeSpec, Slot
from freehold.errors import ModelFileError

MOST_LAYERS = 1024
MOST_HEAD_ELEMENTS = 65536

HF_IGNORED_KEYS = frozenset(
    {
        # names, versions and tools
        *("_name_or_path", "architectures", "transformers_version", "unsloth_version", "unsloth_fixed"),
        *("transformers.js_config", "is_llama_config", "auto_map", "model_name", "tokenizer_class"),
        # how transformers computes, not what
        *("attn_implementation", "_attn_implementation_autoset", "_flash_attn_2_enabled", "torchscript"),
        # training
        *("attention_dropout", "initializer_range", "use_cache", "pretraining_tp", "max_sequence_length"),
        # storage type of the weights: each tensor says its own
        *("torch_dtype", "dtype"),
        # special token ids: the text layer reads them
        *("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id"),
    }
)
"""Keys of config.json that don't affect what a model computes. (``pretraining_tp`` splits products into sums that are
equal in exact arithmetic.)"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a decoder whose layers are all alike. Names as in `ModelSpec` and `AttentionSpec`."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    max_position: int
    norm_eps: float
    tied_embeddings: bool


def read_hf_sizes(keys: Keys, *, num_kv_heads: int | None, head_dim: int | None) -> Sizes:
    """Read config.json's sizes, and refuse what no dense family here has.

    Args:
        num_kv_heads: what an absent ``num_key_value_heads`` means; None: as many as heads.
        head_dim: what an absent ``head_dim`` means; None: hidden size over heads.
    """
    hidden_size, num_heads = keys.size("hidden_size"), keys.size("num_attention_heads")
    sizes = Sizes(
        vocab_size=keys.size("vocab_size"),
        hidden_size=hidden_size,
        num_layers=keys.size("num_hidden_layers", maximum=MOST_LAYERS),
        num_heads=num_heads,
        num_kv_heads=keys.size_or("num_key_value_heads", num_kv_heads or num_heads),
        head_dim=keys.size_or("head_dim", head_dim or hidden_size // num_heads),
        intermediate_size=keys.size("intermediate_size"),
        max_position=keys.size("max_position_embeddings"),
        norm_eps=keys.number_or("rms_norm_eps", 1e-6),
        tied_embeddings=keys.flag_or("tie_word_embeddings", False),
    )
    keys.require("hidden_act", "silu", why="the MLP is gated by SiLU")
    keys.require("quantization_config", None, why="quantized Hugging Face checkpoints; take a GGUF file instead")
    keys.ignore(HF_IGNORED_KEYS)
    return _checked(sizes, keys.source)


def read_gguf_sizes(keys: Keys, *, vocab_size: int, tied_embeddings: bool) -> Sizes:
    """Read the architecture's own GGUF keys.

    Args:
        vocab_size: rows of the embedding; ``vocab_size`` in the metadata must agree if it is there.
    """
    keys.require("vocab_size", vocab_size, why=f"the embedding has {vocab_size} rows")
    hidden_size, num_heads = keys.size("embedding_length"), keys.size("attention.head_count")
    head_dim = keys.size_or("attention.key_length", hidden_size // num_heads)
    keys.require("attention.value_length", head_dim, why=f"keys have {head_dim} elements, values must have as many")
    keys.require("expert_count", 0, why="mixture of experts")
    keys.require("expert_used_count", 0, why="mixture of experts")
    keys.require("use_parallel_residual", False, why="layers are sequential")
    # how the converter laid out the file; the rules of the family say the same
    keys.require("tensor_data_layout", "Meta AI original pth", why="unknown order of query and key rows")
    sizes = Sizes(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_layers=keys.size("block_count", maximum=MOST_LAYERS),
        num_heads=num_heads,
        num_kv_heads=keys.size_or("attention.head_count_kv", num_heads),
        head_dim=head_dim,
        intermediate_size=keys.size("feed_forward_length"),
        max_position=keys.size("context_length"),
        norm_eps=keys.number("attention.layer_norm_rms_epsilon"),
        tied_embeddings=tied_embeddings,
    )
    return _checked(sizes, keys.source)


def read_gguf_window(keys: Keys) -> int | None:
    """``attention.sliding_window``, the keys that a query sees, itself included."""
    return keys.size("attention.sliding_window") if keys.has("attention.sliding_window") else None


def _checked(sizes: Sizes, source: str) -> Sizes:
    if sizes.num_heads % sizes.num_kv_heads:
        raise ModelFileError(
            f"{source}: {sizes.num_heads} heads can't share {sizes.num_kv_heads} key/value heads evenly"
        )
    if sizes.head_dim > MOST_HEAD_ELEMENTS:
        raise ModelFileError(f"{source}: a head has {sizes.head_dim} elements; {MOST_HEAD_ELEMENTS} are allowed")
    if sizes.head_dim < 2 or sizes.head_dim % 2:
        raise ModelFileError(f"{source}: a head of {sizes.head_dim} elements can't be rotated in pairs")
    return sizes


def make_spec(
    sizes: Sizes,
    *,
    family: str,
    rope: RopeSpec,
    windows: Sequence[int | None],
    qk_norm: bool = False,
    qkv_bias: bool = False,
) -> ModelSpec:
    """A decoder whose layers differ in their window alone. `windows` has one entry a layer."""
    layers = tuple(
        LayerSpec(
            attention=AttentionSpec(
                num_heads=sizes.num_heads,
                num_kv_heads=sizes.num_kv_heads,
                head_dim=sizes.head_dim,
                scale=sizes.head_dim**-0.5,
                rope=rope,
                window=window,
                qk_norm=qk_norm,
                qkv_bias=qkv_bias,
            ),
            mlp=MlpSpec(intermediate_size=sizes.intermediate_size),
        )
        for window in windows
    )
    return ModelSpec(
        family=family,
        vocab_size=sizes.vocab_size,
        hidden_size=sizes.hidden_size,
        layers=layers,
        max_position=sizes.max_position,
        norm_eps=sizes.norm_eps,
        tied_embeddings=sizes.tied_embeddings,
    )


HF_GLOBAL_NAMES = {
    Slot.EMBED: "model.embed_tokens.weight",
    Slot.FINAL_NORM: "model.norm.weight",
    Slot.HEAD: "lm_head.weight",
}
HF_LAYER_NAMES = {
    Slot.ATTN_NORM: "model.layers.{layer}.input_layernorm.weight",
    Slot.Q: "model.layers.{layer}.self_attn.q_proj.weight",
    Slot.K: "model.layers.{layer}.self_attn.k_proj.weight",
    Slot.V: "model.layers.{layer}.self_attn.v_proj.weight",
    Slot.Q_BIAS: "model.layers.{layer}.self_attn.q_proj.bias",
    Slot.K_BIAS: "model.layers.{layer}.self_attn.k_proj.bias",
    Slot.V_BIAS: "model.layers.{layer}.self_attn.v_proj.bias",
    Slot.Q_NORM: "model.layers.{layer}.self_attn.q_norm.weight",
    Slot.K_NORM: "model.layers.{layer}.self_attn.k_norm.weight",
    Slot.O: "model.layers.{layer}.self_attn.o_proj.weight",
    Slot.MLP_NORM: "model.layers.{layer}.post_attention_layernorm.weight",
    Slot.GATE: "model.layers.{layer}.mlp.gate_proj.weight",
    Slot.UP: "model.layers.{layer}.mlp.up_proj.weight",
    Slot.DOWN: "model.layers.{layer}.mlp.down_proj.weight",
}
GGUF_GLOBAL_NAMES = {
    Slot.EMBED: "token_embd.weight",
    Slot.FINAL_NORM: "output_norm.weight",
    Slot.HEAD: "output.weight",
}
GGUF_LAYER_NAMES = {
    Slot.ATTN_NORM: "blk.{layer}.attn_norm.weight",
    Slot.Q: "blk.{layer}.attn_q.weight",
    Slot.K: "blk.{layer}.attn_k.weight",
    Slot.V: "blk.{layer}.attn_v.weight",
    Slot.Q_BIAS: "blk.{layer}.attn_q.bias",
    Slot.K_BIAS: "blk.{layer}.attn_k.bias",
    Slot.V_BIAS: "blk.{layer}.attn_v.bias",
    Slot.Q_NORM: "blk.{layer}.attn_q_norm.weight",
    Slot.K_NORM: "blk.{layer}.attn_k_norm.weight",
    Slot.O: "blk.{layer}.attn_output.weight",
    Slot.MLP_NORM: "blk.{layer}.ffn_norm.weight",
    Slot.GATE: "blk.{layer}.ffn_gate.weight",
    Slot.UP: "blk.{layer}.ffn_up.weight",
    Slot.DOWN: "blk.{layer}.ffn_down.weight",
}


def make_rules(
    spec: ModelSpec,
    global_names: dict[Slot, str],
    layer_names: dict[Slot, str],
    row_orders: dict[Slot, RowOrder] | None = None,
) -> list[TensorRule]:
    """One rule for each tensor that the spec asks for."""
    row_orders = row_orders or {}
    rules = [TensorRule(slot, None, global_names[slot], shape) for slot, shape in global_shapes(spec).items()]
    for index, layer in enumerate(spec.layers):
        rules += [
            TensorRule(slot, index, layer_names[slot].format(layer=index), shape, row_orders.get(slot))
            for slot, shape in layer_shapes(layer, spec.hidden_size).items()
        ]
    return rules
