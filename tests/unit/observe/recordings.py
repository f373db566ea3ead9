"""Made-up requests, and recorders in a folder of the test's."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from freehold.observe.record.format import Detail, Header
from freehold.observe.record.recorder import Recorder
from freehold.observe.record.ring import RingLimits
from freehold.observe.record.take import Take
from freehold.protocol import EngineInfo, Finish, Generate, Identity, Logprobs, RequestId, Sampling, Stages, Tokens

INFO = EngineInfo(
    model_family="llama", vocab_size=100, max_model_len=64, max_position=64, max_num_seqs=4, block_size=16,
    num_blocks=8, kv_tokens=128, weight_bytes=1, kv_bytes=1, scratch_bytes=1, backend="cpu", fingerprint="fh-0",
    load_s=1.0,
    identity=Identity(model="ab" * 32, weights="q4", activations="int8", kv="bf16", isa="avx2", version="0.1.0"),
)  # fmt: skip
LARGE = RingLimits(max_bytes=1 << 30, max_age_s=1e9)


def header(run: int) -> Header:
    return Header(
        run=run, unix_s=1000.0, monotonic_s=10.0, model_name="m", model_path="/models/m", info=INFO, tokenizer="cd" * 32
    )


@contextmanager
def recorder(folder: Path, limits: RingLimits = LARGE) -> Iterator[Recorder]:
    made = Recorder(folder, limits, header)
    yield made
    made.close()


def request(name: str = "r", prompt: tuple[int, ...] = (1, 2, 3), **fields: Any) -> Generate:
    return Generate(request_id=RequestId(name), prompt_ids=prompt, sampling=Sampling(seed=7, max_tokens=8), **fields)


def begin(recorder: Recorder, generate: Generate, detail: Detail = "full", key_id: str = "") -> Take:
    number = recorder.begin(generate, http_id=f"http-{generate.request_id}", key_id=key_id, detail=detail)
    assert number is not None
    return Take(recorder, generate, number, detail)


def tokens(generate: Generate, *ids: int) -> Tokens:
    return Tokens(
        request_id=generate.request_id,
        token_ids=ids,
        digests=tuple(id * 1000 for id in ids),
        logprobs=tuple(Logprobs(-0.1 * id, 1, ()) for id in ids),
    )


def finish(generate: Generate, num_output: int, reason: Any = "length", **fields: Any) -> Finish:
    return Finish(
        request_id=generate.request_id,
        reason=reason,
        num_prompt_tokens=len(generate.prompt_ids),
        num_output_tokens=num_output,
        stages=Stages(1.0, 2.0, 3.0, 4.0, 1),
        **fields,
    )


def record_one(recorder: Recorder, name: str = "r", detail: Detail = "full", **fields: Any) -> None:
    """A request that is answered with 4, 5, 6."""
    generate = request(name, **fields)
    take = begin(recorder, generate, detail)
    take.see(tokens(generate, 4, 5))
    take.see(tokens(generate, 6))
    take.see(finish(generate, 3))
