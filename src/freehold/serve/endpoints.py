"""The table of endpoints: what the server answers, with which structs. The routes and the OpenAPI document are made of
it."""

from typing import get_args

from freehold.serve.batches.batch_routes import cancel_batch, create_batch, get_batch, list_batches
from freehold.serve.batches.file_routes import create_file, delete_file, get_content, get_file, list_files
from freehold.serve.batches.schema import (
    BatchObject,
    BatchPage,
    BatchRequest,
    FileDeleted,
    FileObject,
    FilePage,
)
from freehold.serve.chat.chat import create_chat
from freehold.serve.completions import create_completion
from freehold.serve.endpoint import ANY_KEY, GENERATING, NO_KEY, Endpoint
from freehold.serve.live.files import MEDIA, index, page_file
from freehold.serve.live.routes import live as live_state
from freehold.serve.live.schema import LiveAnswer
from freehold.serve.messages.routes import count_tokens, create_message
from freehold.serve.messages.schema import (
    MESSAGES_PATH,
    CountTokensRequest,
    MessageAnswer,
    MessageEvent,
    MessageFailure,
    MessagesRequest,
    TokenCount,
)
from freehold.serve.models import get_model, list_models
from freehold.serve.openapi import openapi
from freehold.serve.operation.health import live, metrics, ready
from freehold.serve.operation.profile import FORMS, ProfileAnswer, ProfileRequest, profile
from freehold.serve.schema import (
    ChatChunk,
    ChatCompletion,
    ChatRequest,
    Completion,
    CompletionRequest,
    ModelCard,
    ModelList,
)
from freehold.serve.tokenize import (
    AppliedTemplate,
    Detokenized,
    DetokenizeRequest,
    Tokenized,
    TokenizeRequest,
    TokenizerInfo,
    apply_template,
    detokenize,
    tokenize,
    tokenizer_info,
)

_SEED = {"x-seed": "The seed of the answer: the request's, or the one that was drawn for it."}
_JSON = ("application/json",)
_PLAIN = ("text/plain",)
_UNKNOWN = frozenset({404})
_DOWN = frozenset({503})

_GENERATION = (
    Endpoint(
        method="POST", path="/v1/chat/completions", needs="chat", handler=create_chat,
        body=ChatRequest, answer=ChatCompletion, events=(ChatChunk,), errors=GENERATING, headers=_SEED,
    ),
    Endpoint(
        method="POST", path="/v1/completions", needs="completions", handler=create_completion,
        body=CompletionRequest, answer=Completion, events=(Completion,), errors=GENERATING, headers=_SEED,
    ),
    Endpoint(
        method="POST", path=MESSAGES_PATH, needs="messages", handler=create_message,
        body=MessagesRequest, answer=MessageAnswer, events=get_args(MessageEvent), failure=MessageFailure,
        errors=GENERATING, headers={**_SEED, "request-id": "The same as x-request-id."},
    ),
)  # fmt: skip
_TEXT = (
    Endpoint(
        method="POST", path="/tokenize", needs="tokenize", handler=tokenize,
        body=TokenizeRequest, answer=Tokenized, errors=_UNKNOWN,
    ),
    Endpoint(
        method="POST", path="/detokenize", needs="tokenize", handler=detokenize,
        body=DetokenizeRequest, answer=Detokenized, errors=_UNKNOWN,
    ),
    Endpoint(
        method="POST", path="/apply-template", needs="tokenize", handler=apply_template,
        body=ChatRequest, answer=AppliedTemplate, errors=_UNKNOWN,
    ),
    Endpoint(
        method="POST", path=f"{MESSAGES_PATH}/count_tokens", needs="messages", handler=count_tokens,
        body=CountTokensRequest, answer=TokenCount, failure=MessageFailure, errors=_UNKNOWN,
    ),
    Endpoint(method="GET", path="/tokenizer_info", needs="tokenize", handler=tokenizer_info, answer=TokenizerInfo),
)  # fmt: skip
_STORED = frozenset({404, 503})
_FILES = (
    Endpoint(
        method="POST", path="/v1/files", needs="files", handler=create_file,
        body_media="multipart/form-data", answer=FileObject, errors=_STORED | {507},
    ),
    Endpoint(
        method="GET", path="/v1/files", needs="files", handler=list_files, answer=FilePage, errors=_STORED,
        query={"purpose": (), "after": (), "limit": (), "order": ("asc", "desc")},
    ),
    Endpoint(
        method="GET", path="/v1/files/{file_id}", needs="files", handler=get_file, answer=FileObject, errors=_STORED
    ),
    Endpoint(
        method="DELETE", path="/v1/files/{file_id}", needs="files", handler=delete_file,
        answer=FileDeleted, errors=_STORED | {409},
    ),
    Endpoint(
        method="GET", path="/v1/files/{file_id}/content", needs="files", handler=get_content,
        media=("application/octet-stream",), errors=_STORED | {410, 416},
    ),
)  # fmt: skip
_BATCHES = (
    Endpoint(
        method="POST", path="/v1/batches", needs="batches", handler=create_batch,
        body=BatchRequest, answer=BatchObject, errors=_STORED | {409, 429, 507},
    ),
    Endpoint(
        method="GET", path="/v1/batches", needs="batches", handler=list_batches, answer=BatchPage, errors=_STORED,
        query={"after": (), "limit": ()},
    ),
    Endpoint(
        method="GET", path="/v1/batches/{batch_id}", needs="batches", handler=get_batch,
        answer=BatchObject, errors=_STORED,
    ),
    Endpoint(
        method="POST", path="/v1/batches/{batch_id}/cancel", needs="batches", handler=cancel_batch,
        answer=BatchObject, errors=_STORED | {409},
    ),
)  # fmt: skip
_ABOUT = (
    Endpoint(method="GET", path="/v1/models", needs=ANY_KEY, handler=list_models, answer=ModelList),
    Endpoint(
        method="GET", path="/v1/models/{model:path}", needs=ANY_KEY, handler=get_model,
        answer=ModelCard, errors=_UNKNOWN,
    ),
    Endpoint(
        method="POST", path="/debug/profile", needs="debug", handler=profile,
        body=ProfileRequest, answer=ProfileAnswer, media=(*_JSON, *_PLAIN), query={"format": FORMS},
        errors=frozenset({404, 409, 501, 503}),
    ),
    Endpoint(
        method="GET", path="/debug/live", needs="metrics", handler=live_state, answer=LiveAnswer, query={"since": ()}
    ),
    Endpoint(method="GET", path="/", needs=NO_KEY, handler=index, media=("text/html",)),
    Endpoint(method="GET", path="/page/{name}", needs=NO_KEY, handler=page_file, media=MEDIA, errors=_UNKNOWN),
    Endpoint(method="GET", path="/openapi.json", needs=ANY_KEY, handler=openapi, media=_JSON),
    Endpoint(method="GET", path="/metrics", needs="metrics", handler=metrics, media=_PLAIN),
    Endpoint(method="GET", path="/livez", needs=NO_KEY, handler=live, media=_PLAIN),
    Endpoint(method="GET", path="/readyz", needs=NO_KEY, handler=ready, media=_PLAIN, errors=_DOWN),
    Endpoint(method="GET", path="/health", needs=NO_KEY, handler=ready, media=_PLAIN, errors=_DOWN),
)  # fmt: skip

ENDPOINTS = (*_GENERATION, *_TEXT, *_FILES, *_BATCHES, *_ABOUT)
