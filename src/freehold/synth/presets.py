"""Sizes by name: small ones of each family for tests, and the shapes of models that people run."""

from freehold.synth.sizes import Family, RopeScaling, SynthConfig


def _tiny(family: Family, *, sliding_window: int | None = None) -> SynthConfig:
    """About a million weights."""
    return SynthConfig(
        family=family,
        hidden_size=128,
        intermediate_size=352,
        num_layers=4,
        num_heads=4,
        num_kv_heads=2,
        head_dim=32,
        vocab_size=1024,
        max_position=1024,
        sliding_window=sliding_window,
    )


PRESETS: dict[str, SynthConfig] = {
    "tiny": _tiny("llama"),
    "tiny-mistral": _tiny("mistral", sliding_window=32),
    "tiny-qwen2": _tiny("qwen2"),
    "tiny-qwen3": _tiny("qwen3"),
    "135m": SynthConfig(
        family="llama",
        hidden_size=576,
        intermediate_size=1536,
        num_layers=30,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        vocab_size=49152,
        max_position=8192,
        rope_theta=100000.0,
    ),
    "qwen2-0.5b": SynthConfig(
        family="qwen2",
        hidden_size=896,
        intermediate_size=4864,
        num_layers=24,
        num_heads=14,
        num_kv_heads=2,
        head_dim=64,
        vocab_size=151936,
        max_position=32768,
        rope_theta=1e6,
        norm_eps=1e-6,
    ),
    "qwen3-0.6b": SynthConfig(
        family="qwen3",
        hidden_size=1024,
        intermediate_size=3072,
        num_layers=28,
        num_heads=16,
        num_kv_heads=8,
        head_dim=128,
        vocab_size=151936,
        max_position=40960,
        rope_theta=1e6,
        norm_eps=1e-6,
    ),
    "llama-1b": SynthConfig(
        family="llama",
        hidden_size=2048,
        intermediate_size=8192,
        num_layers=16,
        num_heads=32,
        num_kv_heads=8,
        head_dim=64,
        vocab_size=128256,
        max_position=131072,
        rope_theta=500000.0,
        rope_scaling=RopeScaling("llama3", factor=32.0),
    ),
    "4b": SynthConfig(
        family="qwen3",
        hidden_size=2560,
        intermediate_size=9728,
        num_layers=36,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        vocab_size=151936,
        max_position=40960,
        rope_theta=1e6,
        norm_eps=1e-6,
    ),
}
