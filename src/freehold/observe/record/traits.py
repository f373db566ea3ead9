"""What may be written of a request's parameters."""

import msgspec

from freehold.observe.record.format import Traits
from freehold.observe.record.hashes import PromptHasher
from freehold.protocol import Generate


def traits_of(generate: Generate) -> Traits:
    """What tells nothing of the text."""
    sampling = generate.sampling
    return Traits(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        choice=sampling.choice,
        service=generate.service,
        priority=generate.priority,
        num_stop_ids=len(sampling.stop_ids),
        has_grammar=generate.grammar is not None,
        has_thinking_limit=generate.thinking is not None,
        has_penalties=(
            sampling.presence_penalty != 0.0 or sampling.frequency_penalty != 0.0 or sampling.repetition_penalty != 1.0
        ),
        num_biases=len(sampling.logit_bias),
        num_allowed_ids=len(sampling.allowed_ids),
        is_pinned=generate.pin is not None,
        num_logprobs=sampling.num_logprobs,
        num_prompt_logprobs=sampling.num_prompt_logprobs,
    )


def scrubbed(generate: Generate, hasher: PromptHasher) -> Generate:
    """The whole request, without the names that clients made up: a salt is a secret, and names may be anybody's. Those
    that were equal still are."""
    pin = generate.pin and msgspec.structs.replace(generate.pin, name=hasher.name(generate.pin.name))
    return msgspec.structs.replace(generate, cache_namespace=hasher.name(generate.cache_namespace), pin=pin)
