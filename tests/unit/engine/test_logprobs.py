"""Log probabilities on their way from the backend to whoever asked, in both kinds of engine."""

from collections.abc import Iterator

import pytest
from engine_fixtures import Receiver, generate, scripted_config
from scripted_child import PROGRAM

from freehold.backends.referee import CHAIN_START, extend_chain
from freehold.backends.script import made_up_logprobs
from freehold.engine.client import Engine
from freehold.engine.handle import EngineHandle
from freehold.engine.remote import ProcessEngine
from freehold.errors import RequestError
from freehold.protocol import Event, Logprobs, PromptLogprobs, Tokens

PROMPT = tuple(range(40, 75))


class Listener(Receiver):
    """Also keeps the events as they came."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if not isinstance(event, PromptLogprobs):
            super().__call__(event)


@pytest.fixture(params=["thread", "process"])
def engine(request: pytest.FixtureRequest) -> Iterator[EngineHandle]:
    config = scripted_config(max_model_len=64, max_num_batched_tokens=16)
    is_thread = request.param == "thread"
    with Engine.start(config) if is_thread else ProcessEngine.start(config, program=PROGRAM) as engine:
        yield engine


def expected(ids: tuple[int, ...], num_top: int) -> list[Logprobs]:
    chain, found = CHAIN_START, []
    for token_id in ids:
        found.append(made_up_logprobs(chain, token_id, num_top, 65536))
        chain = extend_chain(chain, token_id)
    return found


@pytest.mark.parametrize(
    ("num_top", "num_prompt_top", "max_tokens"), [(2, 3, 5), (0, 0, 1), (None, 1, 2), (None, 4, 0)]
)
def test_they_arrive_in_order(engine: EngineHandle, num_top: int | None, num_prompt_top: int, max_tokens: int) -> None:
    listener = Listener()
    request = generate("a", PROMPT, max_tokens=max_tokens, num_logprobs=num_top, num_prompt_logprobs=num_prompt_top)
    engine.submit(request, listener)
    finish = listener.wait()
    assert (finish.reason, finish.num_output_tokens) == ("length", max_tokens)
    scores = [event for event in listener.events if isinstance(event, PromptLogprobs)]
    tokens = [event for event in listener.events if isinstance(event, Tokens)]
    assert listener.events == [*scores, *tokens, finish]
    assert [event.start_pos for event in scores] == [1, 17, 33]
    assert [s for event in scores for s in event.logprobs] == expected(PROMPT, num_prompt_top)[1:]
    assert listener.token_ids == list(PROMPT[:max_tokens])
    logprobs = expected((*PROMPT, *listener.token_ids), num_top)[len(PROMPT) :] if num_top is not None else []
    assert [s for event in tokens for s in event.logprobs] == logprobs


def test_a_prompt_alone_may_fill_the_context_and_nothing_more(engine: EngineHandle) -> None:
    listener = Listener()
    engine.submit(generate("a", tuple(range(64)), max_tokens=0, num_prompt_logprobs=0), listener)
    assert listener.wait().reason == "length"
    assert sum(len(event.logprobs) for event in listener.events if isinstance(event, PromptLogprobs)) == 63
    for prompt, settings in (
        (range(65), {"max_tokens": 0, "num_prompt_logprobs": 0}),
        (range(64), {"max_tokens": 1, "num_prompt_logprobs": 0}),
        (range(9), {"max_tokens": 0}),
        (range(9), {"max_tokens": -1, "num_prompt_logprobs": 0}),
    ):
        with pytest.raises(RequestError, match=r"prompt has|max_tokens is"):
            engine.submit(generate("b", tuple(prompt), **settings), listener)
