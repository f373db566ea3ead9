"""Which requests are refused at the door. There is one limit on length, and the scheduler relies on it."""

from dataclasses import dataclass

from freehold.errors import RequestError, shown
from freehold.protocol import Generate
from freehold.sched.policy import MAX_PRIORITY


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
            token is wanted; or priority or deadline make no sense.
    """
    num_prompt = len(generate.prompt_ids)
    if num_prompt == 0:
        raise RequestError("the prompt holds no tokens; at least 1 is needed", param="prompt", code="empty_prompt")
    if num_prompt >= limits.max_model_len:
        raise RequestError(
            f"the prompt has {num_prompt} tokens; the context holds {limits.max_model_len}, "
            f"of which at least 1 must be left for the answer: shorten the prompt to {limits.max_model_len - 1} tokens",
            param="prompt",
            code="context_length_exceeded",
        )
    if generate.sampling.max_tokens < 1:
        raise RequestError(f"max_tokens is {generate.sampling.max_tokens}; at least 1 is needed", param="max_tokens")
    if abs(generate.priority) > MAX_PRIORITY:
        raise RequestError(
            f"priority is {shown(generate.priority)}; it must be from -{MAX_PRIORITY} to {MAX_PRIORITY}, "
            "and lower goes first",
            param="priority",
        )
    if generate.deadline_s is not None and not 0 < generate.deadline_s < float("inf"):
        raise RequestError(f"deadline_s is {generate.deadline_s}; it must be above 0", param="deadline_s")
    if min(generate.prompt_ids) < 0 or max(generate.prompt_ids) >= limits.vocab_size:
        stranger = next(i for i in generate.prompt_ids if not 0 <= i < limits.vocab_size)
        raise RequestError(
            f"the prompt holds token id {shown(stranger)}; the vocabulary has ids 0 to {limits.vocab_size - 1}",
            param="prompt",
            code="token_id_out_of_range",
        )
