"""Sampling parameters as users give them: validated here, once, for the server and for `LLM`."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from freehold.errors import RequestError
from freehold.grammar.constraint import Constraint
from freehold.protocol import Sampling
from freehold.text.param_checks import check_biases, check_float, check_ids, check_int, check_stops, wrong_type

MAX_N = 16
MAX_STOP_TOKEN_IDS = 256
MAX_ALLOWED_TOKEN_IDS = 1 << 16
MAX_TEMPERATURE = 100.0
MAX_PENALTY = 2.0
MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY = 0.01, 100.0
MAX_BIASES = 1024
MAX_BIAS = 100.0
MAX_LOGPROBS = 20
MAX_SEED = 2**64 - 1
MAX_INT = 2**31 - 1

_GREEDY_BELOW = 1e-5
"""Temperatures below this are greedy: dividing by them gains nothing and overflows."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """How an answer is drawn.

    Attributes:
        temperature: 0 to 100; 0 takes the likeliest token each time.
        top_k: keep the k likeliest tokens; 0 and -1 keep all.
        top_p: 0 to 1; keep the likeliest tokens that together have this probability. 1 keeps all, 0 the likeliest one.
        min_p: 0 to 1; drop tokens less likely than this share of the likeliest. 0 keeps all.
        seed: 0 to 2**64 - 1. The same request with the same seed gives the same answer. None: a fresh one each time.
        n: answers to one prompt, 1 to 16.
        max_tokens: tokens of an answer. None: as many as the context holds. 0: none, to score a prompt.
        min_tokens: up to `max_tokens`. Before so many tokens, no stop id is sampled and no stop string looked for.
        stop: up to 4 strings that end the answer and aren't part of it, each up to 256 bytes.
        stop_token_ids: ids that end the answer, besides the model's own.
        ignore_eos: the model's own ends of an answer don't end it.
        presence_penalty: -2 to 2; lowers the logits of tokens that the answer holds.
        frequency_penalty: -2 to 2; lowers them once for each time.
        repetition_penalty: 0.01 to 100; above 1 it makes tokens that prompt or answer hold less likely.
        logit_bias: added to the logits of up to 1,024 token ids, each -100 to 100.
        allowed_token_ids: up to 65,536 ids, the only ones that may be sampled. None allows all.
        logprobs: 0 to 20; give the log probability of each token and of so many of the likeliest. None gives none.
        prompt_logprobs: 0 to 20; the same for the tokens of the prompt.
        structured_outputs: what the answer must be (`freehold.grammar.constraint`). It then ends where that is
            complete; what `stop`, `stop_token_ids` and `max_tokens` say cuts it short nevertheless.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    n: int = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = msgspec.field(default_factory=dict)
    allowed_token_ids: Sequence[int] | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    structured_outputs: Constraint | None = None

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """`stop` as a tuple."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    @property
    def is_scoring(self) -> bool:
        """No answer is wanted, but the log probabilities of the prompt's tokens."""
        return self.max_tokens == 0 and self.prompt_logprobs is not None

    def validate(self, *, vocab_size: int) -> None:
        """Check every field.

        Raises:
            RequestError: names the field, its value and what is allowed.
        """
        check_float("temperature", self.temperature, 0.0, MAX_TEMPERATURE, "0 takes the likeliest token each time")
        check_int("top_k", self.top_k, -1, MAX_INT, "0 and -1 keep all tokens")
        check_float("top_p", self.top_p, 0.0, 1.0, "1 keeps all tokens")
        check_float("min_p", self.min_p, 0.0, 1.0, "0 keeps all tokens")
        if self.seed is not None:
            check_int("seed", self.seed, 0, MAX_SEED, "leave it out for a fresh one")
        check_int("n", self.n, 1, MAX_N, "send more requests for more answers")
        self._check_length()
        check_stops(self.stop)
        check_ids("stop_token_ids", self.stop_token_ids, vocab_size, MAX_STOP_TOKEN_IDS)
        if not isinstance(self.ignore_eos, bool):
            wrong_type("ignore_eos", self.ignore_eos, "true or false")
        if self.structured_outputs is not None:
            self._check_structured()
        self._check_logits(vocab_size)
        for name, count in (("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)):
            if count is not None:
                check_int(name, count, 0, MAX_LOGPROBS, "leave it out for none")

    def _check_structured(self) -> None:
        if not isinstance(self.structured_outputs, Constraint):
            wrong_type("structured_outputs", self.structured_outputs, "a constraint of freehold.grammar.constraint")
        if self.ignore_eos:
            raise RequestError(
                "ignore_eos is true, but an answer with structured_outputs ends where they are complete; leave it out",
                param="ignore_eos",
            )

    def _check_length(self) -> None:
        check_int("min_tokens", self.min_tokens, 0, MAX_INT, "0 lets an answer end at once")
        if self.max_tokens is None:
            return
        check_int("max_tokens", self.max_tokens, 0, MAX_INT, "leave it out for as many as the context holds")
        if self.min_tokens > self.max_tokens:
            raise RequestError(
                f"min_tokens is {self.min_tokens} and max_tokens {self.max_tokens}; lower the one or raise the other",
                param="min_tokens",
            )

    def _check_logits(self, vocab_size: int) -> None:
        """The parameters that change logits."""
        for name, penalty in (
            ("presence_penalty", self.presence_penalty),
            ("frequency_penalty", self.frequency_penalty),
        ):
            check_float(name, penalty, -MAX_PENALTY, MAX_PENALTY, "0 is off")
        check_float(
            "repetition_penalty", self.repetition_penalty, MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY, "1 is off"
        )
        check_biases("logit_bias", self.logit_bias, vocab_size, MAX_BIASES, MAX_BIAS)
        if self.allowed_token_ids is not None:
            check_ids("allowed_token_ids", self.allowed_token_ids, vocab_size, MAX_ALLOWED_TOKEN_IDS)
            if not self.allowed_token_ids:
                raise RequestError(
                    "allowed_token_ids is empty, which allows nothing; leave it out to allow all tokens",
                    param="allowed_token_ids",
                )

    def stop_ids(self, eos_ids: Iterable[int]) -> frozenset[int]:
        """Ids that end the answer.

        Arguments:
            eos_ids: the model's own.
        """
        return frozenset(self.stop_token_ids) | (frozenset() if self.ignore_eos else frozenset(eos_ids))

    def to_engine(self, *, eos_ids: Iterable[int], choice: int, fresh_seed: int, room: int) -> Sampling:
        """The engine's form of valid parameters, for one of the `n` answers.

        Arguments:
            choice: index of the answer.
            fresh_seed: taken if `seed` is None; one for all answers of a request.
            room: tokens that the context still holds (`context_room`); `max_tokens` is cut to it. If none are wanted,
                the engine samples one nevertheless unless it scores the prompt: `freehold.text.stream` drops it.

        Raises:
            RequestError: no token could be sampled.
        """
        least = 0 if self.is_scoring else 1
        max_tokens = room if self.max_tokens is None else min(max(self.max_tokens, least), room)
        stop_ids, allowed_ids = self.stop_ids(eos_ids), frozenset(self.allowed_token_ids or ())
        if self.min_tokens and allowed_ids and allowed_ids <= stop_ids:
            raise RequestError(
                f"allowed_token_ids holds only ids that end the answer, and min_tokens {self.min_tokens} forbids these "
                "at first; allow others, or set min_tokens to 0",
                param="allowed_token_ids",
            )
        return Sampling(
            temperature=0.0 if self.temperature < _GREEDY_BELOW else float(self.temperature),
            top_k=max(self.top_k, 0),
            top_p=float(self.top_p),
            min_p=float(self.min_p),
            seed=fresh_seed if self.seed is None else self.seed,
            choice=choice,
            max_tokens=max_tokens,
            stop_ids=stop_ids,
            min_tokens=min(self.min_tokens, max_tokens),
            presence_penalty=float(self.presence_penalty),
            frequency_penalty=float(self.frequency_penalty),
            repetition_penalty=float(self.repetition_penalty),
            logit_bias=tuple((token_id, float(bias)) for token_id, bias in sorted(self.logit_bias.items())),
            allowed_ids=tuple(sorted(allowed_ids)),
            num_logprobs=self.logprobs,
            num_prompt_logprobs=self.prompt_logprobs,
        )


def check_may_fit(min_tokens: int, max_model_len: int, *, param: str, least_room: int = 1) -> None:
    """Refuse a text that is too long however it is tokenized, before that is done.

    Args:
        least_room: as for `context_room`.

    Raises:
        RequestError: the text leaves too little room.
    """
    if min_tokens + least_room > max_model_len:
        raise RequestError(
            f"{param} has at least {min_tokens} tokens; this model's context holds {max_model_len}, answer included; "
            "shorten it",
            param=param,
            code="context_length_exceeded",
        )


def context_room(num_prompt_tokens: int, max_model_len: int, *, param: str, least_room: int = 1) -> int:
    """Tokens that an answer may have after a prompt.

    Args:
        least_room: so many it must be able to have: none if only the prompt is scored.

    Raises:
        RequestError: the prompt leaves fewer.
    """
    room = max_model_len - num_prompt_tokens
    if room < least_room:
        raise RequestError(
            f"{param} has {num_prompt_tokens} tokens; this model's context holds {max_model_len}, answer included; "
            "shorten it",
            param=param,
            code="context_length_exceeded",
        )
    return room
