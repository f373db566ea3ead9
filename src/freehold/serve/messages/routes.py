"""``POST /v1/messages`` and ``/v1/messages/count_tokens``."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from freehold.errors import RequestError
from freehold.serve import body as bodies
from freehold.serve.chat.chat import Surface, answer
from freehold.serve.chat.prompt import render
from freehold.serve.entrance.caller import caller_of
from freehold.serve.messages.breakpoints import breakpoint_of
from freehold.serve.messages.chats import chat_of, renamed
from freehold.serve.messages.form import MessageForm
from freehold.serve.messages.schema import CountTokensRequest, MessagesRequest, TokenCount
from freehold.serve.reply import while_connected
from freehold.serve.schema import ChatRequest
from freehold.serve.service import Service

_decoder = msgspec.json.Decoder(MessagesRequest)
_count_decoder = msgspec.json.Decoder(CountTokensRequest)


async def create_message(request: Request) -> Response | ASGIApp:
    """Answer a conversation in Anthropic's form, streamed or whole."""
    service: Service = request.app.state.service
    body, num_bytes = await bodies.receive(request, service.config.max_body_bytes, service.lanes, _decoder)

    chat, mark = chat_of(body), breakpoint_of(body)
    surface = Surface(
        "msg",
        lambda planned: MessageForm(planned, body.max_tokens),
        None if mark is None else mark.pin,
        is_system_apart=True,
    )
    with _renaming():
        return await answer(request, chat, num_bytes, surface)


async def count_tokens(request: Request) -> Response:
    """Tokens of the prompt that a conversation makes."""
    service: Service = request.app.state.service
    body, num_bytes = await bodies.receive(request, service.config.max_body_bytes, service.lanes, _count_decoder)
    service.check_model(body.model, caller_of(request.scope))
    chat = chat_of(body)
    with _renaming():
        counting = service.lanes.run(num_bytes, _count, service, chat)
        count = await while_connected(request.receive, counting)
    return Response(msgspec.json.encode(TokenCount(count)), media_type="application/json")


def _count(service: Service, chat: ChatRequest) -> int:
    return len(render(service, chat).encode(service.text.tokenizer))


@contextmanager
def _renaming() -> Iterator[None]:
    try:
        yield
    except RequestError as error:
        raise renamed(error) from None
