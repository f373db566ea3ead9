"""From what a body asks of its answers to a grammar for the engine."""

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from starlette.types import Receive

from freehold.errors import RequestError
from freehold.grammar.constraint import Choice, Constraint, JsonObject, JsonSchema, Lark, Regex
from freehold.protocol import Grammar, Trigger
from freehold.serve.entrance.record import Record
from freehold.serve.reply import while_connected
from freehold.serve.schema import SamplingFields
from freehold.serve.service import Service
from freehold.serve.structured_schema import JsonObjectFormat, JsonSchemaFormat, ResponseFormat, StructuredOutputs


@dataclass(frozen=True, slots=True)
class Wanted:
    """What answers must be.

    Attributes:
        param: the field that says so.
        after_id, trigger: as in `Grammar`: where this holds.
    """

    constraint: Constraint
    param: str
    after_id: int | None = None
    trigger: Trigger | None = None


def wanted(body: SamplingFields) -> Wanted | None:
    """What a body asks of its answers; None if nothing.

    Raises:
        RequestError: it asks for two things, or for none in particular.
    """
    by_format = None if body.response_format is None else _of_format(body.response_format)
    by_vllm = None if body.structured_outputs is None else _of_vllm(body.structured_outputs)
    if by_format is not None and by_vllm is not None:
        raise RequestError(
            "response_format and structured_outputs both say what the answer must be; send one of them",
            param="structured_outputs",
        )
    return by_format or by_vllm


async def compile_grammar(service: Service, receive: Receive, wish: Wanted | None, record: Record) -> Grammar | None:
    """The grammar of what is wanted, unless the client leaves first. The record says how long it took.

    Raises:
        RequestError: as from `GrammarCompiler.compile`.
        ClientLeftError: the client left.
    """
    if wish is None:
        return None
    compile_it = partial(
        service.grammars.compile,
        wish.constraint,
        param=wish.param,
        after_id=wish.after_id,
        trigger=wish.trigger,
    )
    record.compiling_s = time.monotonic()
    try:
        return await while_connected(receive, service.lanes.compile(compile_it))
    finally:
        record.compiled_s = time.monotonic()


def _of_format(chosen: ResponseFormat) -> Wanted | None:
    match chosen:
        case JsonSchemaFormat(named):
            return Wanted(JsonSchema(named.schema), "response_format.json_schema.schema")
        case JsonObjectFormat():
            return Wanted(JsonObject(), "response_format")
        case _:
            return None


def _of_vllm(outputs: StructuredOutputs) -> Wanted:
    given: dict[str, Any] = msgspec.to_builtins(outputs)
    if len(given) != 1:
        names = ", ".join(StructuredOutputs.__struct_fields__)
        raise RequestError(
            f"structured_outputs has {', '.join(given) or 'nothing'}; exactly one of {names} is needed",
            param="structured_outputs",
        )
    [(kind, value)] = given.items()
    param = f"structured_outputs.{kind}"
    match kind:
        case "json":
            constraint: Constraint = JsonSchema(_decoded(value, param) if isinstance(value, str) else value)
        case "regex":
            constraint = Regex(value)
        case "choice":
            constraint = Choice(tuple(value))
        case "grammar":
            constraint = Lark(value)
        case _:
            if not value:
                raise RequestError(f"{param} is false; leave structured_outputs out", param=param)
            constraint = JsonObject()
    return Wanted(constraint, param)


def _decoded(text: str, param: str) -> Any:
    """A schema that is written as text."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"{param} is no JSON: {error}", param=param, code="invalid_json") from None
