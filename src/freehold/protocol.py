"""Messages between the server (or `LLM`) and the engine: integers only, no text.

Data flows one way as `Generate`, `Abort` and `Drain`; back come `PromptLogprobs`, `Tokens` and exactly one `Finish` for
each accepted request.
"""

import hashlib
from typing import Literal, NewType, get_args

import msgspec

RequestId = NewType("RequestId", str)

FinishReason = Literal["stop", "length", "cancelled", "failed"]
"""Terminal states: finished (``stop`` or ``length``), cancelled, failed."""

ServiceClass = Literal["interactive", "agent", "batch"]
"""What kind of work a request is, most urgent first: someone watches it; a program waits for it; nobody does."""

SERVICES: tuple[ServiceClass, ...] = get_args(ServiceClass)

MAX_PINNED_SHARE = 0.5
"""Of the KV cache, that pins may hold. The rest is for what is used, whoever pins how much."""

MAX_PRIORITY = 100
"""Priorities reach from minus this to this."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """How the engine picks tokens. Values are validated where the request enters (`freehold.text.params`).

    Attributes:
        temperature: 0 is greedy.
        top_k: 0 is off.
        top_p: 1.0 is off; 0.0 keeps the best token alone.
        min_p: 0.0 is off; drops tokens less likely than ``min_p`` times the likeliest.
        seed: fixes the noise together with ``choice``, the absolute position and the token id. 0 to 2**64 - 1.
        choice: index of this answer among the ``n`` answers of a request.
        max_tokens: ids to produce at most, at least 1; or 0 if `num_prompt_logprobs` is set.
        stop_ids: ids that end the answer; the id that ended it is reported, and is not part of the text.
        min_tokens: ids to produce before a stop id may be sampled.
        presence_penalty, frequency_penalty: subtracted from the logit of an id that the answer holds, once and for each
            time. 0.0 is off.
        repetition_penalty: the logit of an id that prompt or answer hold is divided by it if positive, else multiplied.
            1.0 is off.
        logit_bias: (id, bias) pairs, ascending by id; added to logits.
        allowed_ids: the only ids that may be sampled; empty allows all.
        num_logprobs: report the log probability of each sampled id and of so many of the likeliest; None reports none.
        num_prompt_logprobs: the same for each id of the prompt but the first.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    choice: int = 0
    max_tokens: int = 16
    stop_ids: frozenset[int] = frozenset()
    min_tokens: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_ids: tuple[int, ...] = ()
    num_logprobs: int | None = None
    num_prompt_logprobs: int | None = None


class TokenTexts(msgspec.Struct, frozen=True, tag=True):
    """What the tokens write, for grammars. Sent once, before the first `Generate` with one.

    Attributes:
        texts: by id, the bytes that a token adds to the text; of a control token its literal.
        control_ids: tokens that add nothing to the text.
    """

    texts: tuple[bytes, ...]
    control_ids: tuple[int, ...]


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """Where a grammar holds that doesn't hold everywhere: anything may come until one of some texts does. What follows
    that must be as the grammar says; when it is complete, anything may come again.

    A grammar that has a head (`freehold.grammar.constraint.Lark`) is also looked out for at the answer's beginning, and
    holds only once a text that its head stands for has come.

    Attributes:
        openers: the texts, in bytes.
        thoughts: texts around reasoning, which may come before the answer and triggers nothing.
        is_open: the prompt has opened reasoning; else the answer may.
    """

    openers: tuple[bytes, ...] = ()
    thoughts: tuple[bytes, bytes] | None = None
    is_open: bool = False


class Grammar(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer's text must be (`freehold.grammar`).

    An id that ends the answer (`Sampling.stop_ids`) may come where the text is complete, besides where it is allowed as
    text, and there must be one. Where nothing else may come, the answer ends, whatever `Sampling.min_tokens` says. Up
    to `after_id`, if that is given, everything may come but control tokens that end the answer.

    Attributes:
        source: read by nobody but the engine's matchers.
        after_id: the text begins after this id was sampled for the first time; None: at once.
        max_free: so many ids come before `after_id` at most; then it is the only one that may. None: any number.
        trigger: the grammar is one of parts of the answer, which begin where this says. None: of all of it.
    """

    source: bytes
    after_id: int | None = None
    max_free: int | None = None
    trigger: Trigger | None = None


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """Keep a prompt's beginning cached for some time.

    Attributes:
        name: a later pin of the same name and namespace takes the place of this one. Without a name it stands for the
            ids themselves.
        ttl_s: seconds; None: as long as the engine runs.
        num_tokens: of the prompt, from its first on; None: all.
    """

    name: str = ""
    ttl_s: float | None
    num_tokens: int | None = None


class ThinkingLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How long an answer may reason. When that has taken so many ids, the one that ends it must come.

    Attributes:
        max_tokens: ids of reasoning, those that begin and end it not among them.
        end_id: ends reasoning.
        begin_id: reasoning begins after this id was sampled, if it ever is; None: at once.
    """

    max_tokens: int
    end_id: int
    begin_id: int | None = None


class Generate(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Ask the engine to continue `prompt_ids`.

    Attributes:
        grammar: what the answer must be; None for anything. The engine must have been told `TokenTexts`.
        thinking: how long the answer may reason; None for any time.
        cache_namespace: only requests of the same namespace share cached keys and values.
        family: answers to the same prompt (``n`` > 1) have the same non-empty one: they share the prompt's blocks even
            where nothing else is cached.
        service: how urgent the request is.
        priority: within the class; lower goes first.
        pin: what was cached of the prompt is evicted last for some time after the request has let go of it.
        is_public: what is computed may be reused in every namespace. Never of what one client sends.
        deadline_s: seconds after its arrival at which the request ends as failed, with ``deadline_exceeded``, if it
            hasn't ended by then.
        digests: also report a digest of the logits behind each id (docs/decisions/determinism.md).
        steps: also tell who had rows in the steps in which it has one (`StepRows`).
    """

    request_id: RequestId
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    grammar: Grammar | None = None
    thinking: ThinkingLimit | None = None
    digests: bool = False
    steps: bool = False
    cache_namespace: str = ""
    family: str = ""
    service: ServiceClass = "interactive"
    priority: int = 0
    pin: Pin | None = None
    is_public: bool = False
    deadline_s: float | None = None


class Abort(msgspec.Struct, frozen=True, tag=True):
    """End a request early. Unknown or finished ids are ignored."""

    request_id: RequestId


class Drain(msgspec.Struct, frozen=True, tag=True):
    """The last message: finish what was accepted, cancel what is left after `deadline_s` seconds, and end. A second one
    with a shorter deadline overrules the first."""

    deadline_s: float


class Logprobs(msgspec.Struct, frozen=True, array_like=True):
    """How likely one token was, by the model's own logits: before temperature, penalties, biases and masks.

    Attributes:
        logprob: natural logarithm of its probability.
        rank: 1 if no other token is likelier; among equals the lower id is first.
        top: (id, log probability) of the likeliest tokens in that order, as many as were asked for.
    """

    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


class PromptLogprobs(msgspec.Struct, frozen=True, kw_only=True, tag=True, array_like=True):
    """Log probabilities of a request's prompt ids from position `start_pos` on. They come in order, each position but
    the first once, before any `Tokens`."""

    request_id: RequestId
    start_pos: int
    logprobs: tuple[Logprobs, ...]


class Tokens(msgspec.Struct, frozen=True, kw_only=True, tag=True, array_like=True):
    """Newly sampled ids of one request, oldest first; one or more.

    Attributes:
        digests, logprobs: one for each id if the request asked for them, else empty.
        started_s: of the request's first ids: as in `Stages`, which come only when it ends. None of all others.
        held_s: of the same: seconds before that in which it waited until its grammar was compiled.
    """

    request_id: RequestId
    token_ids: tuple[int, ...]
    digests: tuple[int, ...] = ()
    logprobs: tuple[Logprobs, ...] = ()
    started_s: float | None = None
    held_s: float = 0.0


class Stages(msgspec.Struct, frozen=True, array_like=True):
    """When a request went from one stage to the next in the engine: seconds of the monotonic clock, which all processes
    of a machine share.

    Attributes:
        arrived_s: the scheduler took it on. Until `started_s` it waits.
        started_s: it first had a row in a step. Until `first_token_s` its prompt is computed.
        first_token_s: its first id was known. Until `ended_s` the answer grows.
        num_preemptions: times that its blocks were taken from it.
    """

    arrived_s: float
    started_s: float | None
    first_token_s: float | None
    ended_s: float
    num_preemptions: int = 0


class Finish(msgspec.Struct, frozen=True, kw_only=True, tag=True, array_like=True):
    """The one terminal event of a request.

    Attributes:
        reason: ``stop`` (a stop id came), ``length`` (max_tokens or the context ended), ``cancelled``, ``failed``.
        stop_id: the id that ended the answer if `reason` is ``stop``. It was also reported in `Tokens`.
        num_output_tokens: ids sampled, the stop id included.
        num_cached_tokens: of the prompt's, those whose keys and values were reused instead of computed.
        code: machine-readable cause if `reason` is ``failed``, such as ``numeric_error``.
        message: a sentence for people if `reason` is ``failed``.
        stages: None if the engine ended without telling.
    """

    request_id: RequestId
    reason: FinishReason
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int = 0
    stop_id: int | None = None
    code: str | None = None
    message: str | None = None
    stages: Stages | None = None


Event = PromptLogprobs | Tokens | Finish


class StepRows(msgspec.Struct, frozen=True, tag=True):
    """Who had rows in a step, told before what they bring. It may be left out if much is to be told.

    Attributes:
        ended_s: when its results were there, in seconds of the monotonic clock.
        request_ids: of each row. Some may have ended before the step did.
        num_inputs: tokens that each row computed.
    """

    step_id: int
    ended_s: float
    request_ids: tuple[RequestId, ...]
    num_inputs: tuple[int, ...]


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """All that fixes a request's tokens besides the request itself. Names of formats as in
    `freehold.backends.base.NumericFormat`.

    Attributes:
        model: hash of the model's files, hexadecimal.
        version: Freehold's.
    """

    model: str = ""
    weights: str = ""
    activations: str = ""
    kv: str = ""
    isa: str = ""
    version: str = ""

    @property
    def fingerprint(self) -> str:
        """A short name of all of it."""
        parts = (self.model, self.weights, self.activations, self.kv, self.isa, self.version)
        return "fh-" + hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine tells once, after start-up.

    Attributes:
        fingerprint: of `identity`: equal ones promise equal tokens.
        weight_bytes, kv_bytes, scratch_bytes: memory reserved at start-up, in bytes.
        kv_tokens: tokens that fit in the KV cache.
        max_position: tokens of context that the model was trained for. `max_model_len` is less if the KV cache holds
            less, or if less was asked for.
        load_s: seconds from start to ready.
    """

    model_family: str
    vocab_size: int
    max_model_len: int
    max_position: int
    max_num_seqs: int
    block_size: int
    num_blocks: int
    kv_tokens: int
    weight_bytes: int
    kv_bytes: int
    scratch_bytes: int
    backend: str
    fingerprint: str
    load_s: float
    identity: Identity = Identity()
