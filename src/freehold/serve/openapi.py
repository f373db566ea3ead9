"""``GET /openapi.json``: the API described by the structs that requests are decoded into and answers encoded from."""

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from inspect import getdoc
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from freehold import __version__
from freehold.serve.endpoint import Endpoint
from freehold.serve.reply import EVENT_STREAM
from freehold.serve.schema import Body, FailureBody

Json = dict[str, Any]

_JSON = "application/json"
_OF_MEDIA = {_JSON: {"type": "object"}}
_PREFIX = "#/components/schemas/"
_REQUEST_ID = {"description": "The request's id, as in the server's log.", "schema": {"type": "string"}}
_RETRY_AFTER = {"description": "Seconds to wait before trying again.", "schema": {"type": "integer", "minimum": 1}}


async def openapi(request: Request) -> Response:
    """This document."""
    state = request.app.state
    if state.document is None:
        state.document = msgspec.json.encode(document(state.endpoints))
    return Response(state.document, media_type=_JSON)


def document(endpoints: Sequence[Endpoint]) -> Json:
    """The OpenAPI document of the endpoints."""
    schemas = _Schemas(endpoints)
    paths: dict[str, Json] = {}
    for endpoint in endpoints:
        path = paths.setdefault(endpoint.template, {})
        path[endpoint.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Freehold",
            "version": __version__,
            "description": "Inference of one model. A field that is unknown is refused by name unless it is null.",
        },
        "paths": paths,
        "components": {"schemas": schemas.components},
    }


class _Schemas:
    """Schemas of all structs, and what they are referred to by."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        structs: list[type[msgspec.Struct]] = []
        for endpoint in endpoints:
            structs += (one for one in (endpoint.body, endpoint.answer, endpoint.failure) if one is not None)
            structs += endpoint.events
        self._structs = list(dict.fromkeys(structs))
        references, self.components = msgspec.json.schema_components(self._structs, ref_template=_PREFIX + "{name}")
        self._references = dict(zip(self._structs, references, strict=True))
        for struct in self._structs:
            if issubclass(struct, Body):
                _add_strangers(self.components[self.of(struct)["$ref"].removeprefix(_PREFIX)], struct)

    def of(self, struct: type[msgspec.Struct]) -> Json:
        """A reference to a struct's schema."""
        return self._references[struct]


def _add_strangers(schema: Json, struct: type[Body]) -> None:
    """Tell of the fields that aren't the struct's: null says nothing anywhere, and some may say what does nothing."""
    schema["additionalProperties"] = {"type": "null"}
    for name in sorted(struct.ignored):
        schema["properties"][name] = {"description": "Accepted; does nothing."}
    for name, values in sorted(struct.neutral.items()):
        schema["properties"].setdefault(
            name, {"description": "Not supported; these values ask for nothing.", "enum": [*values, None]}
        )


def _operation(endpoint: Endpoint, schemas: _Schemas) -> Json:
    told = (getdoc(endpoint.handler) or "").partition("\n\n")[0].replace("\n", " ")
    operation: Json = {
        "operationId": "_".join(re.findall("[a-z0-9]+", f"{endpoint.method.lower()} {endpoint.path}")),
        "summary": told.rstrip("."),
        "parameters": _parameters(endpoint),
        "responses": {"200": _success(endpoint, schemas)},
    }
    for status in sorted(endpoint.statuses):
        operation["responses"][str(status)] = _failure(status, endpoint, schemas)
    if endpoint.body is not None:
        content = {_JSON: {"schema": schemas.of(endpoint.body)}}
        operation["requestBody"] = {"required": True, "content": content}
    elif endpoint.body_media is not None:
        operation["requestBody"] = {"required": True, "content": {endpoint.body_media: {}}}
    return operation


def _parameters(endpoint: Endpoint) -> list[Json]:
    names = [part[1:-1] for part in endpoint.template.split("/") if part.startswith("{")]
    in_path = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    in_query = [
        {"name": name, "in": "query", "schema": {"type": "string", **({"enum": list(values)} if values else {})}}
        for name, values in endpoint.query.items()
    ]
    return in_path + in_query


def _success(endpoint: Endpoint, schemas: _Schemas) -> Json:
    content: Json = {media: {"schema": _OF_MEDIA.get(media, {"type": "string"})} for media in endpoint.media}
    if endpoint.answer is not None:
        kinds = [schemas.of(endpoint.answer), *(content[media]["schema"] for media in content if media == _JSON)]
        content[_JSON] = {"schema": {"anyOf": kinds} if len(kinds) > 1 else kinds[0]}
    if endpoint.events:
        content[EVENT_STREAM] = {"schema": _event(schemas, endpoint)}
    headers: Json = {"x-request-id": _REQUEST_ID}
    for name, meaning in endpoint.headers.items():
        headers[name] = {"description": meaning, "schema": {"type": "string"}}
    return {"description": "Done", "content": content, "headers": headers}


def _event(schemas: _Schemas, endpoint: Endpoint) -> Json:
    """An event of a stream. An error ends it in the place of what was left."""
    kinds: list[Json] = [
        {"contentMediaType": _JSON, "contentSchema": schemas.of(kind)} for kind in (*endpoint.events, endpoint.failure)
    ]
    if endpoint.failure is FailureBody:
        kinds.append({"const": "[DONE]"})
    data = {"type": "string", "anyOf": kinds}
    return {"type": "object", "properties": {"data": data}, "required": ["data"]}


def _failure(status: int, endpoint: Endpoint, schemas: _Schemas) -> Json:
    headers: Json = {"x-request-id": _REQUEST_ID}
    if status in {429, 503}:
        headers["retry-after"] = {**_RETRY_AFTER, "required": True}
    content = {_JSON: {"schema": schemas.of(endpoint.failure)}}
    return {"description": HTTPStatus(status).phrase, "content": content, "headers": headers}
