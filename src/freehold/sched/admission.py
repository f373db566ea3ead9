"""Which requests are refused at the door. There is one limit on length, and the scheduler relies on it."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from freehold.errors import RequestError, shown
from freehold.protocol import MAX_PRIORITY, SERVICES, Generate

MAX_PIN_S = 86400.0
"""A day: what is pinned for longer would better be asked for now and then."""


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
            token is wanted, or ids outside the vocabulary are to be biased or allowed; or class, priority or deadline
            make no sense.
    """
    _check_prompt(generate, limits)
    _check_order(generate)
    sampling = generate.sampling
    least = 1 if sampling.num_prompt_logprobs is None else 0
    if sampling.max_tokens < least:
        raise RequestError(f"max_tokens is {sampling.max_tokens}; at least {least} is needed", param="max_tokens")
    _check_ids(generate.prompt_ids, limits.vocab_size, param="prompt")
    _check_ids([token_id for token_id, _ in sampling.logit_bias], limits.vocab_size, param="logit_bias")
    _check_ids(sampling.allowed_ids, limits.vocab_size, param="allowed_token_ids")


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
    if generate.pin_s is not None and not 0 <= generate.pin_s <= MAX_PIN_S:
        raise RequestError(f"pin_s is {generate.pin_s}; it must be from 0 to {MAX_PIN_S:g}", param="pin_s")
    deadline_s: object = generate.deadline_s
    # An integer may be finite and still no time: beyond what a float holds.
    if deadline_s is not None and not (isinstance(deadline_s, int | float) and 0 < deadline_s <= sys.float_info.max):
        raise RequestError(f"deadline_s is {shown(deadline_s)}; it must be a number above 0", param="deadline_s")


def _check_ids(token_ids: Sequence[int], vocab_size: int, *, param: str) -> None:
    if token_ids and (min(token_ids) < 0 or max(token_ids) >= vocab_size):
        stranger = next(i for i in token_ids if not 0 <= i < vocab_size)
        raise RequestError(
            f"the {param} holds token id {shown(stranger)}; the vocabulary has ids 0 to {vocab_size - 1}",
            param=param,
            code="token_id_out_of_range",
        )
