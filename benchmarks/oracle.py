"""The truth for a GGUF file of the llama architecture: its dequantized weights in transformers, float32.

Needs the test extra. Weights are read and dequantized by the `gguf` package, so that nothing of Freehold takes part.
"""

from pathlib import Path

import gguf
import numpy as np
import torch
import transformers

GLOBAL_NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class Oracle:
    """A transformers model in float32, and its tokenizer."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        config = _config(reader)
        self._model = transformers.LlamaForCausalLM(config).eval()
        state = {}
        for tensor in reader.tensors:
            values = np.array(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
            name = _hf_name(tensor.name)
            if ".q_proj." in name:
                values = _in_halves(values, config.num_attention_heads)
            elif ".k_proj." in name:
                values = _in_halves(values, config.num_key_value_heads)
            state[name] = torch.from_numpy(values)
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
        self._model.load_state_dict(state, strict=True)
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)

    def logits(self, token_ids: list[int]) -> np.ndarray:
        """Logits after every token of a text: float32 (tokens, V)."""
        with torch.inference_mode():
            return self._model(torch.tensor([token_ids])).logits[0].numpy()


def _config(reader: gguf.GGUFReader) -> transformers.LlamaConfig:
    def value(key: str):
        return reader.fields[key].contents()

    if value("general.architecture") != "llama" or any("rope.scaling" in key for key in reader.fields):
        raise ValueError("the oracle reads plain llama files only")
    return transformers.LlamaConfig(
        vocab_size=value("llama.vocab_size"),
        hidden_size=value("llama.embedding_length"),
        intermediate_size=value("llama.feed_forward_length"),
        num_hidden_layers=value("llama.block_count"),
        num_attention_heads=value("llama.attention.head_count"),
        num_key_value_heads=value("llama.attention.head_count_kv"),
        max_position_embeddings=value("llama.context_length"),
        rms_norm_eps=value("llama.attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": value("llama.rope.freq_base")},
        tie_word_embeddings=all(tensor.name != "output.weight" for tensor in reader.tensors),
        attn_implementation="eager",
    )


def _hf_name(name: str) -> str:
    if name in GLOBAL_NAMES:
        return GLOBAL_NAMES[name]
    _, layer, kind, _ = name.split(".")
    return f"model.layers.{layer}.{LAYER_NAMES[kind]}.weight"


def _in_halves(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """The converter interleaves the two halves of each head; take every other row to undo it."""
    heads = rows.reshape(num_heads, -1, rows.shape[1])
    return np.concatenate([heads[:, 0::2], heads[:, 1::2]], axis=1).reshape(rows.shape)
