"""The engine's door: what would end a step, and with it other requests, is refused by name."""

from typing import Any

import pytest

from freehold.errors import RequestError
from freehold.protocol import Generate, RequestId, Sampling
from freehold.sched.admission import Limits, check

LIMITS = Limits(max_model_len=64, vocab_size=100, block_size=16, max_num_seqs=4, max_num_batched_tokens=32)
HUGE = 10**400
NO_NUMBERS = [float("nan"), float("inf"), float("-inf"), HUGE, -HUGE, 1e31, "1", None]

BAD: list[tuple[str, dict[str, Any]]] = [
    *(("max_tokens", {"max_tokens": value}) for value in (0, -1, 2**63, HUGE, 1.5, "1", None)),
    *(("min_tokens", {"min_tokens": value}) for value in (-1, 2**31, 1.5, None)),
    *(("top_k", {"top_k": value}) for value in (-1, 2**31, 0.5, None)),
    *(("seed", {"seed": value}) for value in (-1, 2**64, HUGE, 1.5, None)),
    *(("choice", {"choice": value}) for value in (-1, 2**31, 0.5)),
    *(("logprobs", {"num_logprobs": value}) for value in (-1, 10**6, 0.5)),
    *(("prompt_logprobs", {"num_prompt_logprobs": value}) for value in (-1, 10**6, 0.5)),
    *(
        (name, {name: value})
        for name in (
            *("temperature", "top_p", "min_p"),
            *("presence_penalty", "frequency_penalty", "repetition_penalty"),
        )
        for value in NO_NUMBERS
    ),
    *((name, {name: -0.5}) for name in ("temperature", "top_p", "min_p", "repetition_penalty")),
    ("repetition_penalty", {"repetition_penalty": 0.0}),
    *(("logit_bias", {"logit_bias": ((3, value),)}) for value in NO_NUMBERS),
    *(("logit_bias", {"logit_bias": ((value, 1.0),)}) for value in (-1, 100)),
    *(("allowed_token_ids", {"allowed_ids": (value,)}) for value in (-1, 100)),
]


def request(**sampling: Any) -> Generate:
    return Generate(request_id=RequestId("one"), prompt_ids=(1, 2, 3), sampling=Sampling(**sampling))


@pytest.mark.parametrize(("param", "sampling"), BAD, ids=lambda value: str(value)[:60])
def test_what_cannot_be_computed_with_is_refused_by_name(param: str, sampling: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as refused:
        check(request(**sampling), LIMITS)
    assert refused.value.param == param
    assert param in str(refused.value)


@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"temperature": 0, "seed": 2**64 - 1, "choice": 15, "top_k": 2**31 - 1, "top_p": 0, "min_p": 1},
        {
            "presence_penalty": -2,
            "frequency_penalty": 2,
            "repetition_penalty": 0.01,
            "logit_bias": ((0, -100), (99, 100.0)),
        },
        {"max_tokens": 0, "num_prompt_logprobs": 0},
        {"num_logprobs": 20, "allowed_ids": (0, 99), "min_tokens": 5},
    ],
)
def test_what_can_is_let_in(sampling: dict[str, Any]) -> None:
    check(request(**sampling), LIMITS)
