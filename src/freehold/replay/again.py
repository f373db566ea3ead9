"""What to ask an engine so that it repeats a recorded request, as far as that got."""

from typing import Literal

import msgspec

from freehold.observe.record.reader import RecordedRequest
from freehold.protocol import Generate, RequestId

Skip = Literal["metadata", "unfinished", "refused", "empty"]
"""Why a record can't be compared: it holds no ids; nobody knows how it ended; the engine never took it; it ended before
its first id."""


def again(recorded: RecordedRequest) -> Generate | Skip:
    """The request whose ids, digests and log probabilities must be the recorded ones.

    Those of an answer that was broken off are compared up to there, so no more is asked for: what an answer's length is
    limited to doesn't change the ids before.
    """
    generate, ended = recorded.begun.generate, recorded.ended
    if ended is None:
        return "unfinished"
    if ended.outcome == "refused":
        return "refused"
    if generate is None:
        return "metadata"
    sampling = generate.sampling
    max_tokens = sampling.max_tokens if ended.outcome == "finished" else len(ended.token_ids)
    if max_tokens == 0 and not ended.prompt_logprobs:
        return "empty"
    return msgspec.structs.replace(
        generate,
        request_id=RequestId(recorded.record_id),
        sampling=msgspec.structs.replace(
            sampling,
            max_tokens=max_tokens,
            min_tokens=min(sampling.min_tokens, max_tokens),
            num_logprobs=sampling.num_logprobs or 0,
        ),
        digests=True,
        family=generate.family and f"{recorded.header.run}-{generate.family}",
        pin=None,
        deadline_s=None,
    )
