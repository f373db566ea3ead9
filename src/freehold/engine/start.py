"""From a configuration to an engine that is ready: read the model, decide the memory, open the backend."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from freehold import __version__
from freehold.arch import Weights, read_model
from freehold.arch.sizes import kv_block_bytes, weight_bytes
from freehold.arch.spec import ModelSpec
from freehold.backends import open_backend
from freehold.backends.base import Backend, BackendOptions
from freehold.backends.script import Scripts
from freehold.backends.scripted import ScriptedBackend
from freehold.config import EngineConfig
from freehold.engine.core import Core, Publish
from freehold.engine.place import Stage
from freehold.engine.profiling import OnProfile, Profiling
from freehold.engine.rounds import Rounds
from freehold.engine.runner import Runner
from freehold.engine.steps import OnStep, StepReports
from freehold.errors import ConfigError, ResourceError
from freehold.faults import Point, reach
from freehold.files.model import ModelFiles, open_model
from freehold.files.packed_cache import PackedCache
from freehold.kv.blocks import BlockPool
from freehold.protocol import EngineInfo, Identity
from freehold.sched.admission import Limits
from freehold.sched.pace import StepPace
from freehold.sched.policy import POLICIES
from freehold.sched.scheduler import Scheduler
from freehold.sched.thrash import ThrashAlarm
from freehold.setting_kinds import format_size

SMALLEST_CONTEXT = 256
"""Tokens that must fit if no context length is asked for; fewer only for models trained for fewer."""

SCRIPTED_VOCAB_SIZE = 65536
SCRIPTED_MAX_POSITION = 8192
SCRIPTED_TOKEN_BYTES = 1024
"""The scripted backend opens no model. It claims these sizes, close to those of a small real one."""

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Loaded:
    """A core that only needs to be run, and what it was made with."""

    core: Core
    info: EngineInfo
    limits: Limits


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """What the memory decision needs to know of a model.

    Attributes:
        block_bytes: bytes of one KV block over all layers.
        weight_bytes: bytes of the weights as the file stores them.
    """

    max_position: int
    block_bytes: int
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class Memory:
    """What was decided: KV blocks, and the context length that they and the model allow."""

    num_blocks: int
    max_model_len: int


def load(
    config: EngineConfig,
    *,
    publish: Publish,
    on_profile: OnProfile,
    on_step: OnStep,
    scripts: Scripts | None = None,
    on_stage: Callable[[Stage], None] = lambda _stage: None,
) -> Loaded:
    """Load the model and reserve all memory.

    Args:
        publish: takes the core's events.
        on_profile: takes profiles that were asked for.
        on_step: takes what is told of steps.
        scripts: what the ``scripted`` backend answers.
        on_stage: told what is being done.

    Raises:
        UserError: no such model, not a model that Freehold runs, or one that doesn't fit in memory.
    """
    started_s = time.monotonic()
    outlets = _Outlets(publish, on_profile, on_step)
    _check_sizes(config)
    if config.backend == "scripted":
        sizes = ModelSizes(SCRIPTED_MAX_POSITION, SCRIPTED_TOKEN_BYTES * config.block_size, 0)
        memory = decide_memory(config, sizes)
        backend: Backend = ScriptedBackend(SCRIPTED_VOCAB_SIZE, _options(config, memory), scripts)
        model = _Model("scripted", SCRIPTED_VOCAB_SIZE, "", started_s)
        return _assemble(config, memory, sizes, backend, outlets, model)

    on_stage("open the model's files")
    reach(Point.LOAD_OPEN)
    with open_model(config.model_path, cache_dir=config.cache_dir) as files:
        spec, weights = read_model(files)
        sizes = _sizes(config, spec, weights)
        memory = decide_memory(config, sizes)
        on_stage("load the weights")
        reach(Point.LOAD_WEIGHTS)
        packed = _packed_cache(config, files)
        backend = open_backend(config.backend, spec, weights, _options(config, memory, packed))
        try:
            on_stage("check the model's files")
            reach(Point.LOAD_CHECK)
            check_memory(config, backend.weight_bytes, memory.num_blocks * sizes.block_bytes, backend.scratch_bytes)
            model = _Model(spec.family, spec.vocab_size, files.fingerprint(), started_s)
            files.release_pages()
            if packed is not None:
                packed.keep(files.weight_digests())
        except BaseException:
            backend.close()
            raise
    return _assemble(config, memory, sizes, backend, outlets, model)


def decide_memory(config: EngineConfig, sizes: ModelSizes) -> Memory:
    """Decide how many KV blocks to reserve and how long a request may be, before anything is loaded.

    Raises:
        ConfigError: a longer context is asked for than the model was trained for.
        ResourceError: the KV cache can't hold one request, or weights and KV cache exceed the memory limit.
    """
    if config.max_model_len is not None and config.max_model_len > sizes.max_position:
        raise ConfigError(
            f"--max-model-len {config.max_model_len} is more than the {sizes.max_position} tokens "
            "that the model was trained for; lower it or leave it out"
        )
    num_blocks = config.kv_cache_bytes // sizes.block_bytes
    kv_tokens = num_blocks * config.block_size
    needed = config.max_model_len or min(SMALLEST_CONTEXT, sizes.max_position)
    if kv_tokens < needed:
        enough_mib = -(-(-(-needed // config.block_size) * sizes.block_bytes) // _MIB)
        raise ResourceError(
            f"a KV cache of {format_size(config.kv_cache_bytes)} holds {kv_tokens} tokens, and {needed} are needed: "
            f"raise --kv-cache-memory-bytes to at least {enough_mib}M"
            + (", or lower --max-model-len" if config.max_model_len else "")
        )
    check_memory(config, sizes.weight_bytes, num_blocks * sizes.block_bytes, 0)
    return Memory(num_blocks, config.max_model_len or min(sizes.max_position, kv_tokens))


def check_memory(config: EngineConfig, weights: int, kv: int, scratch: int) -> None:
    """Compare what would be reserved, in bytes, with the limit.

    Raises:
        ResourceError: it is more; the message has all parts and what would fit.
    """
    limit = config.memory_limit_bytes
    if limit is None or weights + kv + scratch <= limit:
        return
    parts = f"weights {_mib(weights)}, KV cache {_mib(kv)}, scratch {_mib(scratch)}"
    rest = limit - weights - scratch
    remedy = (
        f"set --kv-cache-memory-bytes to at most {rest // _MIB}M"
        if rest >= _MIB
        else "use a smaller model or more memory"
    )
    raise ResourceError(f"the model needs {_mib(weights + kv + scratch)} ({parts}), {_mib(limit)} are usable: {remedy}")


@dataclass(frozen=True, slots=True)
class _Model:
    """What is left to know of a model once it is loaded."""

    family: str
    vocab_size: int
    fingerprint: str
    started_s: float


@dataclass(frozen=True, slots=True)
class _Outlets:
    """Where what the core says goes."""

    publish: Publish
    on_profile: OnProfile
    on_step: OnStep


def _assemble(
    config: EngineConfig, memory: Memory, sizes: ModelSizes, backend: Backend, outlets: _Outlets, model: _Model
) -> Loaded:
    """Put scheduler, runner and core together around an open backend."""
    limits = Limits(
        max_model_len=memory.max_model_len,
        vocab_size=model.vocab_size,
        block_size=config.block_size,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
    )
    pace = StepPace(config.itl_target_ms / 1000)
    scheduler = Scheduler(
        BlockPool(memory.num_blocks),
        limits,
        clock=time.monotonic,
        policy=POLICIES[config.scheduling_policy](),
        prefix_caching=config.prefix_caching,
        alarm=ThrashAlarm(
            num_blocks=memory.num_blocks,
            block_size=config.block_size,
            block_bytes=sizes.block_bytes,
            max_num_seqs=config.max_num_seqs,
            clock=time.monotonic,
        ),
        pace=pace,
    )
    identity = _identity(model.fingerprint, backend)
    info = EngineInfo(
        model_family=model.family,
        vocab_size=model.vocab_size,
        max_model_len=memory.max_model_len,
        max_position=sizes.max_position,
        max_num_seqs=config.max_num_seqs,
        block_size=config.block_size,
        num_blocks=memory.num_blocks,
        kv_tokens=memory.num_blocks * config.block_size,
        weight_bytes=backend.weight_bytes,
        kv_bytes=memory.num_blocks * sizes.block_bytes,
        scratch_bytes=backend.scratch_bytes,
        backend=config.backend,
        fingerprint=identity.fingerprint,
        load_s=time.monotonic() - model.started_s,
        identity=identity,
    )
    runner = Runner(backend, pace)
    profiling = Profiling(runner, config.num_threads, outlets.on_profile)
    if config.profile:
        try:
            profiling.prepare()
        except BaseException:
            backend.close()
            raise
    rounds = Rounds(scheduler, pace)
    core = Core(scheduler, runner, rounds, outlets.publish, profiling, StepReports(outlets.on_step))
    return Loaded(core, info, limits)


def _check_sizes(config: EngineConfig) -> None:
    for flag, value in (
        ("--max-num-seqs", config.max_num_seqs),
        ("--max-num-batched-tokens", config.max_num_batched_tokens),
        ("--max-model-len", config.max_model_len),
    ):
        if value is not None and value < 1:
            raise ConfigError(f"{flag} is {value}; at least 1 is needed")
    if config.block_size < 16 or config.block_size % 16:
        raise ConfigError(f"--block-size is {config.block_size}; it must be a multiple of 16")


def _sizes(config: EngineConfig, spec: ModelSpec, weights: Weights) -> ModelSizes:
    return ModelSizes(
        max_position=spec.max_position,
        block_bytes=kv_block_bytes(spec, config.block_size, config.kv_cache_dtype),
        weight_bytes=weight_bytes(spec, weights),
    )


def _packed_cache(config: EngineConfig, files: ModelFiles) -> PackedCache | None:
    if config.packed_dir is None:
        return None
    always = config.packed_cache == "always"
    known = files.known_digests()
    return PackedCache(config.packed_dir, config.model_path, known, config.packed_cache_bytes, always=always)


def _options(config: EngineConfig, memory: Memory, packed: PackedCache | None = None) -> BackendOptions:
    return BackendOptions(
        num_blocks=memory.num_blocks,
        block_size=config.block_size,
        max_rows=config.max_num_seqs,
        max_tokens=config.max_num_batched_tokens,
        kv_dtype=config.kv_cache_dtype,
        activations=config.activations,
        num_threads=config.num_threads,
        isa=config.isa,
        packed=packed,
    )


def _identity(model_fingerprint: str, backend: Backend) -> Identity:
    """All that fixes the tokens of a request."""
    form = backend.numeric_format
    return Identity(
        model=model_fingerprint,
        weights=form.weights,
        activations=form.activations,
        kv=form.kv,
        isa=form.isa,
        version=__version__,
    )


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / _MIB:.0f} MiB"
