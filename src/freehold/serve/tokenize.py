"""Text to token ids and back, as the model's own prompts are made: ``POST /tokenize`` and ``/detokenize``,
``GET /tokenizer_info`` (vLLM's spellings), and ``POST /apply-template`` (llama.cpp's).

None of it needs the engine. A text may be longer than the context, as counting its tokens is what one asks for; the
body's size bounds it, and long ones take turns in their lane.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from freehold.errors import RequestError
from freehold.serve import body as bodies
from freehold.serve.chat.chat import check
from freehold.serve.chat.prompt import render
from freehold.serve.entrance.caller import caller_of
from freehold.serve.reply import while_connected
from freehold.serve.schema import Body, ChatRequest, SayingMessage
from freehold.serve.service import Service
from freehold.text.tokenizer import Tokenizer


class TokenizeRequest(Body, kw_only=True):
    """Body of ``POST /tokenize``: a prompt, or messages with what their template needs.

    Attributes:
        add_special_tokens: begin with BOS where the model's texts do. By default a prompt does as it does in
            ``/v1/completions``, and messages have what their template writes.
        return_token_strs: also tell each token as the vocabulary spells it.
        return_token_texts: also tell each token as text, as log probabilities do.
    """

    model: str | None = None
    prompt: str | None = None
    messages: list[SayingMessage] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    return_token_texts: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class Tokenized(msgspec.Struct):
    """Answer of ``POST /tokenize``.

    Attributes:
        token_strs: as the vocabulary spells them: ``Ġworld``, ``▁world``, ``<0xF0>``.
        token_texts: what they write: `` world``; bytes that are no whole character are escaped, as in ``\\xf0``.
    """

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None
    token_texts: list[str] | UnsetType = UNSET


class DetokenizeRequest(Body, kw_only=True):
    """Body of ``POST /detokenize``."""

    model: str | None = None
    tokens: list[int]


class Detokenized(msgspec.Struct):
    """Answer of ``POST /detokenize``: control tokens as their literals; bytes that are no UTF-8 become U+FFFD."""

    prompt: str


class AppliedTemplate(msgspec.Struct):
    """Answer of ``POST /apply-template``: the prompt that the chat's template writes."""

    prompt: str


class TokenizerInfo(msgspec.Struct, kw_only=True):
    """Answer of ``GET /tokenizer_info``, by the names of Hugging Face's ``tokenizer_config.json``.

    Attributes:
        vocab_size: tokens of the vocabulary; the model may have more rows, for padding.
        model_max_length: tokens that a request may have, answer included.
        eos_token_ids: what ends an answer.
        additional_special_tokens: literals of all control tokens.
        chat_template: its source; several by name.
    """

    model: str
    vocab_size: int
    model_max_length: int
    add_bos_token: bool
    bos_token: str | None
    bos_token_id: int | None
    eos_token: str | None
    eos_token_ids: list[int]
    unk_token: str | UnsetType = UNSET
    pad_token: str | UnsetType = UNSET
    additional_special_tokens: list[str]
    chat_template: str | dict[str, str] | None


_tokenize_decoder = msgspec.json.Decoder(TokenizeRequest)
_detokenize_decoder = msgspec.json.Decoder(DetokenizeRequest)
_chat_decoder = msgspec.json.Decoder(ChatRequest)


async def tokenize(request: Request) -> Response:
    """The ids that a prompt or a chat has for this model."""
    service: Service = request.app.state.service
    body, num_bytes = await bodies.receive(request, service.config.max_body_bytes, service.lanes, _tokenize_decoder)
    service.check_model(body.model, caller_of(request.scope))
    _check_form(body)
    return await _answer(request, service, num_bytes, lambda: _tokenized(service, body))


async def detokenize(request: Request) -> Response:
    """The text of ids."""
    service: Service = request.app.state.service
    body, num_bytes = await bodies.receive(request, service.config.max_body_bytes, service.lanes, _detokenize_decoder)
    service.check_model(body.model, caller_of(request.scope))
    return await _answer(request, service, num_bytes, lambda: _detokenized(service, body.tokens))


async def apply_template(request: Request) -> Response:
    """The prompt of a chat as text. The body is that of ``/v1/chat/completions``, and checked
    as there."""
    service: Service = request.app.state.service
    body, num_bytes = await bodies.receive(request, service.config.max_body_bytes, service.lanes, _chat_decoder)
    check(service, body, caller_of(request.scope))
    return await _answer(request, service, num_bytes, lambda: AppliedTemplate(render(service, body).text))


async def tokenizer_info(request: Request) -> Response:
    """What a client must know to tokenize by itself."""
    service: Service = request.app.state.service
    return Response(msgspec.json.encode(_info(service)), media_type="application/json")


async def _answer(request: Request, service: Service, num_bytes: int, work: Callable[[], msgspec.Struct]) -> Response:
    """Do the work and write its result in the lane for so many bytes, unless the client leaves."""
    writing = service.lanes.run(num_bytes, lambda: msgspec.json.encode(work()))
    return Response(await while_connected(request.receive, writing), media_type="application/json")


def _check_form(body: TokenizeRequest) -> None:
    """
    Raises:
        RequestError: neither a prompt nor messages, both, or what only messages have with a prompt.
    """
    if body.prompt is None and body.messages is None:
        raise RequestError(
            "prompt is missing; send a text as prompt, or a chat as messages", param="prompt", code="missing_field"
        )
    if body.prompt is None:
        return
    for name in ("messages", "add_generation_prompt", "continue_final_message", "chat_template_kwargs"):
        if getattr(body, name) is not None:
            raise RequestError(f"{name} can't stand beside prompt; send a prompt or messages", param=name)


def _tokenized(service: Service, body: TokenizeRequest) -> Tokenized:
    """Blocks for as long as rendering and tokenizing take.

    Raises:
        RequestError: see `render` and `Tokenizer.encode`.
    """
    tokenizer = service.text.tokenizer
    if body.prompt is not None:
        ids = tokenizer.encode(body.prompt, add_bos=False if body.add_special_tokens is False else None)
    else:
        chat = ChatRequest(
            messages=body.messages or [],
            add_generation_prompt=body.add_generation_prompt,
            continue_final_message=body.continue_final_message,
            chat_template_kwargs=body.chat_template_kwargs,
        )
        ids = render(service, chat).encode(tokenizer)
        if body.add_special_tokens and tokenizer.add_bos and tokenizer.bos_id is not None:
            ids = ids if ids[:1] == [tokenizer.bos_id] else [tokenizer.bos_id, *ids]
    return Tokenized(
        count=len(ids),
        max_model_len=service.info.max_model_len,
        tokens=ids,
        token_strs=[tokenizer.vocabulary.spelled(token_id) or "" for token_id in ids]
        if body.return_token_strs
        else None,
        token_texts=[tokenizer.spell(token_id)[0] for token_id in ids] if body.return_token_texts else UNSET,
    )


def _detokenized(service: Service, ids: list[int]) -> Detokenized:
    """
    Raises:
        RequestError: an id that the model doesn't have.
    """
    tokenizer = service.text.tokenizer
    tokenizer.check_ids(ids, param="tokens", vocab_size=service.info.vocab_size)
    return Detokenized(tokenizer.decode(ids, skip_control=False))


def _info(service: Service) -> TokenizerInfo:
    tokenizer = service.text.tokenizer
    named = tokenizer.special_tokens
    template = service.text.template
    sources = None if template is None else template.sources
    return TokenizerInfo(
        model=service.config.served_model_name,
        vocab_size=tokenizer.vocab_size,
        model_max_length=service.info.max_model_len,
        add_bos_token=tokenizer.add_bos,
        bos_token=_literal(tokenizer, tokenizer.bos_id),
        bos_token_id=tokenizer.bos_id,
        eos_token=named.get("eos_token"),
        eos_token_ids=sorted(tokenizer.eos_ids),
        unk_token=named.get("unk_token", UNSET),
        pad_token=named.get("pad_token", UNSET),
        additional_special_tokens=sorted(tokenizer.vocabulary.controls),
        chat_template=sources["default"] if sources is not None and len(sources) == 1 else sources,
    )


def _literal(tokenizer: Tokenizer, token_id: int | None) -> str | None:
    return None if token_id is None else tokenizer.vocabulary.spelled(token_id)
