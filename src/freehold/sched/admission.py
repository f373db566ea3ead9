"""Which requests are refused at the door. There is one limit on length, and the scheduler relies on it."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from freehold.errors import RequestError, shown
from freehold.protocol import MAX_PRIORITY, SERVICES, Generate, Pin, Sampling

MAX_INT = 2**31 - 1
MAX_COUNT = 2**63 - 1
"""Of tokens; the context ends every answer long before."""
MAX_SEED = 2**64 - 1
MAX_LOGPROBS = 1000
"""Of one token; what is told of it takes memory."""
MAX_NUMBER = 1e30
"""Far beyond what makes sense, and far from what float32 can't hold."""

MAX_PIN_S = 86400.0
"""A day: what is pinned for longer would better be asked for now and then."""
MAX_PIN_NAME = 256
"""Characters."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes fixed at start-up: what one request and what one step may hold.

    Attributes:
        max_model_len: prompt plus output tokens of a request. The KV pool always holds that many.
        vocab_size: prompt ids are below it.
        block_size: tokens in a KV block.
        max_num_seqs: rows of one step.
        max_num_batched_tokens: inputs of one step.
    """

    max_model_len: int
    vocab_size: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int

    def max_total(self, generate: Generate) -> int:
        """Prompt plus output tokens at which the request ends with ``length``: its own limit or the context's."""
        return min(len(generate.prompt_ids) + generate.sampling.max_tokens, self.max_model_len)


def check(generate: Generate, limits: Limits) -> None:
    """Refuse what can't be served.

    Raises:
        RequestError: the prompt is empty, leaves no room for an answer, or holds an id outside the vocabulary; no
            token is wanted, or ids outside the vocabulary are to be biased or allowed; a number can't be computed with;
            or class, priority or deadline make no sense.
    """
    sampling = generate.sampling
    _check_sampling(sampling)
    _check_prompt(generate, limits)
    _check_order(generate)
    _check_grammar(generate, limits)
    _check_thinking(generate, limits)
    _check_ids(generate.prompt_ids, limits.vocab_size, param="prompt")
    _check_ids([token_id for token_id, _ in sampling.logit_bias], limits.vocab_size, param="logit_bias")
    _check_ids(sampling.allowed_ids, limits.vocab_size, param="allowed_token_ids")


def _check_sampling(sampling: Sampling) -> None:
    """What would end a step, and with it others' requests. Tighter bounds, for users, are `freehold.text.params`'."""
    least_tokens = 1 if sampling.num_prompt_logprobs is None else 0
    integers: tuple[tuple[str, object, int, int], ...] = (
        ("max_tokens", sampling.max_tokens, least_tokens, MAX_COUNT),
        ("min_tokens", sampling.min_tokens, 0, MAX_INT),
        ("top_k", sampling.top_k, 0, MAX_INT),
        ("seed", sampling.seed, 0, MAX_SEED),
        ("choice", sampling.choice, 0, MAX_INT),
        ("logprobs", sampling.num_logprobs or 0, 0, MAX_LOGPROBS),
        ("prompt_logprobs", sampling.num_prompt_logprobs or 0, 0, MAX_LOGPROBS),
    )
    for name, integer, low, high in integers:
        if not isinstance(integer, int) or not low <= integer <= high:
            raise RequestError(f"{name} is {shown(integer)}; it must be an integer from {low} to {high}", param=name)
    numbers: tuple[tuple[str, object, float], ...] = (
        ("temperature", sampling.temperature, 0.0),
        ("top_p", sampling.top_p, 0.0),
        ("min_p", sampling.min_p, 0.0),
        ("repetition_penalty", sampling.repetition_penalty, sys.float_info.min),
        ("presence_penalty", sampling.presence_penalty, -MAX_NUMBER),
        ("frequency_penalty", sampling.frequency_penalty, -MAX_NUMBER),
        *(("logit_bias", bias, -MAX_NUMBER) for _, bias in sampling.logit_bias),
    )
    for name, number, least in numbers:
        if not isinstance(number, int | float) or not least <= number <= MAX_NUMBER:
            raise RequestError(
                f"{name} is {shown(number)}; it must be a number from {least:g} to {MAX_NUMBER:g}", param=name
            )


def _check_prompt(generate: Generate, limits: Limits) -> None:
    """A prompt without an answer, whose log probabilities alone are wanted, may fill the context."""
    num_prompt = len(generate.prompt_ids)
    least_room = 0 if generate.sampling.max_tokens == 0 else 1
    if num_prompt == 0:
        raise RequestError("the prompt holds no tokens; at least 1 is needed", param="prompt", code="empty_prompt")
    if num_prompt + least_room > limits.max_model_len:
        raise RequestError(
            f"the prompt has {num_prompt} tokens; the context holds {limits.max_model_len}"
            + (", of which at least 1 must be left for the answer" if least_room else "")
            + f": shorten the prompt to {limits.max_model_len - least_room} tokens",
            param="prompt",
            code="context_length_exceeded",
        )


def _check_order(generate: Generate) -> None:
    if generate.service not in SERVICES:
        raise RequestError(f"service is {shown(generate.service)}; it may be {', '.join(SERVICES)}", param="service")
    if not isinstance(generate.priority, int) or abs(generate.priority) > MAX_PRIORITY:
        raise RequestError(
            f"priority is {shown(generate.priority)}; it must be an integer from -{MAX_PRIORITY} to {MAX_PRIORITY}, "
            "and lower goes first",
            param="priority",
        )
    if generate.pin is not None:
        _check_pin(generate.pin)
    deadline_s: object = generate.deadline_s
    # An integer may be finite and still no time: beyond what a float holds.
    if deadline_s is not None and not (isinstance(deadline_s, int | float) and 0 < deadline_s <= sys.float_info.max):
        raise RequestError(f"deadline_s is {shown(deadline_s)}; it must be a number above 0", param="deadline_s")


def _check_grammar(generate: Generate, limits: Limits) -> None:
    """An answer must be able to end where its grammar does, unless anything may come then."""
    grammar = generate.grammar
    if grammar is None:
        return
    if not generate.sampling.stop_ids and grammar.trigger is None:
        raise RequestError(
            "a grammar needs an id that ends the answer, and there is none; send stop_token_ids",
            param="stop_token_ids",
        )
    if grammar.after_id is not None:
        _check_ids([grammar.after_id], limits.vocab_size, param="grammar")
    max_free: object = grammar.max_free
    if max_free is not None and not (isinstance(max_free, int) and 0 <= max_free <= MAX_COUNT):
        raise RequestError(f"max_free is {shown(max_free)}; it must be an integer from 0", param="grammar")


def _check_pin(pin: Pin) -> None:
    if pin.ttl_s is not None and not 0 <= pin.ttl_s <= MAX_PIN_S:
        raise RequestError(f"a pin's ttl_s is {shown(pin.ttl_s)}; it must be from 0 to {MAX_PIN_S:g}", param="pin")
    if pin.num_tokens is not None and pin.num_tokens < 0:
        raise RequestError(f"a pin's num_tokens is {shown(pin.num_tokens)}; it must be 0 or more", param="pin")
    if len(pin.name) > MAX_PIN_NAME:
        raise RequestError(f"a pin's name has {len(pin.name)} characters; up to {MAX_PIN_NAME} may be", param="pin")


def _check_thinking(generate: Generate, limits: Limits) -> None:
    thinking = generate.thinking
    if thinking is None:
        return
    ids = [thinking.end_id] if thinking.begin_id is None else [thinking.end_id, thinking.begin_id]
    _check_ids(ids, limits.vocab_size, param="thinking")
    max_tokens: object = thinking.max_tokens
    if not (isinstance(max_tokens, int) and 0 <= max_tokens <= MAX_COUNT):
        raise RequestError(
            f"max_tokens of thinking is {shown(max_tokens)}; it must be an integer from 0", param="thinking"
        )


def _check_ids(token_ids: Sequence[int], vocab_size: int, *, param: str) -> None:
    if token_ids and (min(token_ids) < 0 or max(token_ids) >= vocab_size):
        stranger = next(i for i in token_ids if not 0 <= i < vocab_size)
        raise RequestError(
            f"the {param} holds token id {shown(stranger)}; the vocabulary has ids 0 to {vocab_size - 1}",
            param=param,
            code="token_id_out_of_range",
        )
