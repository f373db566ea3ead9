"""Sampling parameters as users give them: validated here, once, for the server and for `LLM`."""

from collections.abc import Iterable, Sequence

import msgspec

from freehold.errors import RequestError, shown
from freehold.protocol import Sampling

MAX_N = 16
MAX_STOPS = 4
MAX_STOP_BYTES = 256
MAX_STOP_TOKEN_IDS = 256
MAX_TEMPERATURE = 100.0
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
        max_tokens: tokens of an answer, at least 1. None: as many as the context holds.
        stop: up to 4 strings that end the answer and aren't part of it, each up to 256 bytes.
        stop_token_ids: ids that end the answer, besides the model's own.
        ignore_eos: the model's own ends of an answer don't end it.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    n: int = 1
    max_tokens: int | None = None
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """`stop` as a tuple."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def validate(self, *, vocab_size: int) -> None:
        """Check every field.

        Raises:
            RequestError: names the field, its value and what is allowed.
        """
        _check_float("temperature", self.temperature, MAX_TEMPERATURE, "0 takes the likeliest token each time")
        _check_int("top_k", self.top_k, -1, MAX_INT, "0 and -1 keep all tokens")
        _check_float("top_p", self.top_p, 1.0, "1 keeps all tokens")
        _check_float("min_p", self.min_p, 1.0, "0 keeps all tokens")
        if self.seed is not None:
            _check_int("seed", self.seed, 0, MAX_SEED, "leave it out for a fresh one")
        _check_int("n", self.n, 1, MAX_N, "send more requests for more answers")
        if self.max_tokens is not None:
            _check_int("max_tokens", self.max_tokens, 1, MAX_INT, "leave it out for as many as the context holds")
        _check_stops(self.stop)
        _check_stop_ids(self.stop_token_ids, vocab_size)
        if not isinstance(self.ignore_eos, bool):
            raise _type_error("ignore_eos", self.ignore_eos, "true or false")

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
            room: tokens that the context still holds (`context_room`); `max_tokens` is cut to it.
        """
        return Sampling(
            temperature=0.0 if self.temperature < _GREEDY_BELOW else float(self.temperature),
            top_k=max(self.top_k, 0),
            top_p=float(self.top_p),
            min_p=float(self.min_p),
            seed=fresh_seed if self.seed is None else self.seed,
            choice=choice,
            max_tokens=room if self.max_tokens is None else min(self.max_tokens, room),
            stop_ids=self.stop_ids(eos_ids),
        )


def check_may_fit(min_tokens: int, max_model_len: int, *, param: str) -> None:
    """Refuse a text that is too long however it is tokenized, before that is done.

    Raises:
        RequestError: the text fills the context.
    """
    if min_tokens >= max_model_len:
        raise RequestError(
            f"{param} has at least {min_tokens} tokens; this model's context holds {max_model_len}, answer included. "
            "Shorten it.",
            param=param,
            code="context_length_exceeded",
        )


def context_room(num_prompt_tokens: int, max_model_len: int, *, param: str) -> int:
    """Tokens that an answer may have after a prompt, at least 1.

    Raises:
        RequestError: the prompt fills the context.
    """
    room = max_model_len - num_prompt_tokens
    if room < 1:
        raise RequestError(
            f"{param} has {num_prompt_tokens} tokens; this model's context holds {max_model_len}, answer included. "
            "Shorten it.",
            param=param,
            code="context_length_exceeded",
        )
    return room


def _check_float(name: str, value: object, largest: float, remedy: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _type_error(name, value, "a number")
    if not 0 <= value <= largest:
        raise RequestError(f"{name} is {shown(value)}; it must be between 0 and {largest:g} ({remedy}).", param=name)


def _check_int(name: str, value: object, smallest: int, largest: int, remedy: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _type_error(name, value, "an integer")
    if not smallest <= value <= largest:
        raise RequestError(
            f"{name} is {shown(value)}; it must be between {smallest} and {largest} ({remedy}).", param=name
        )


def _check_stops(stop: object) -> None:
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list | tuple):
        raise _type_error("stop", stop, "a string or a list of strings")
    if len(stops) > MAX_STOPS:
        raise RequestError(f"stop has {len(stops)} strings; up to {MAX_STOPS} are allowed.", param="stop")
    for position, text in enumerate(stops):
        if not isinstance(text, str):
            raise _type_error(f"stop[{position}]", text, "a string", param="stop")
        if not text:
            raise RequestError(f"stop[{position}] is empty, which would stop everything; remove it.", param="stop")
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > MAX_STOP_BYTES:
            raise RequestError(f"stop[{position}] has {size} bytes; up to {MAX_STOP_BYTES} are allowed.", param="stop")


def _check_stop_ids(ids: object, vocab_size: int) -> None:
    if not isinstance(ids, list | tuple | set | frozenset):
        raise _type_error("stop_token_ids", ids, "a list of token ids")
    if len(ids) > MAX_STOP_TOKEN_IDS:
        raise RequestError(
            f"stop_token_ids has {len(ids)} ids; up to {MAX_STOP_TOKEN_IDS} are allowed.", param="stop_token_ids"
        )
    for token_id in ids:
        if isinstance(token_id, bool) or not isinstance(token_id, int):
            raise _type_error("stop_token_ids", token_id, "a list of token ids")
        if not 0 <= token_id < vocab_size:
            raise RequestError(
                f"stop_token_ids holds {shown(token_id)}; this model has token ids 0 to {vocab_size - 1}.",
                param="stop_token_ids",
                code="token_id_out_of_range",
            )


def _type_error(name: str, value: object, wanted: str, *, param: str | None = None) -> RequestError:
    return RequestError(f"{name} is {shown(value)}; {wanted} is needed.", param=param or name, code="invalid_type")
