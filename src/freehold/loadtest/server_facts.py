"""What a server says of itself before the load: its model, its version, its vocabulary."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from freehold.errors import ResourceError
from freehold.foreign_json import NOT_JSON
from freehold.loadtest.client.failures import FailedRequestError
from freehold.loadtest.client.http_client import HttpClient
from freehold.loadtest.client.refusals import remedy

_MOST_SHOWN = 4096


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What is known of the server.

    Attributes:
        model: its name for requests.
        listed: names of all models that it lists.
        vocab_size, max_model_len: of the model, and tokens of context; None if the server doesn't tell.
        told: whatever else it tells, for the results.
    """

    model: str
    vocab_size: int | None = None
    max_model_len: int | None = None
    told: dict[str, Any] = field(default_factory=dict)
    listed: tuple[str, ...] = ()


async def ask_server(http: HttpClient, model: str | None) -> ServerFacts:
    """Ask for models, version and vocabulary.

    Args:
        model: to use; None takes the first that is listed.

    Raises:
        ResourceError: no server answers, it isn't an OpenAI-compatible one, or it lists no models and none was named.
    """
    told: dict[str, Any] = {}
    listed: list[dict[str, Any]] = []
    try:
        response = await http.fetch("/v1/models")
        listed = [each for each in msgspec.json.decode(response.body).get("data", []) if isinstance(each, dict)]
        if "server" in response.headers:
            told["server"] = response.headers["server"]
    except FailedRequestError as error:
        if error.code == "connect":
            raise ResourceError(str(error)) from None
        if error.code in {"dropped", "malformed"}:
            raise ResourceError(
                f"{http.target.url} speaks no HTTP ({error}); if it speaks TLS, write https://"
            ) from None
        if model is None:
            todo = remedy(error.status, "", (), has_fields=False)
            raise ResourceError(f"{http.target.url} gives no list of models: {error}{todo}") from None
    except (*NOT_JSON, AttributeError):
        if model is None:
            raise ResourceError(
                f"{http.target.url} is no OpenAI-compatible server: its /v1/models lists no models; check --base-url"
            ) from None
    if model is None:
        if not listed or not isinstance(listed[0].get("id"), str):
            raise ResourceError(f"{http.target.url} doesn't list its models; name one with --model")
        model = str(listed[0]["id"])
    own = next((each for each in listed if each.get("id") == model), None)
    if own is not None and len(msgspec.json.encode(own)) <= _MOST_SHOWN:
        told["model"] = own
    version = await _json_at(http, "/version")
    if isinstance(version.get("version"), str):
        told["version"] = version["version"]
    names = tuple(str(each["id"]) for each in listed if "id" in each)
    return ServerFacts(model, await _vocab_size(http, own or {}), _context(own or {}), told, names)


def _context(model: dict[str, Any]) -> int | None:
    return _count(model.get("max_model_len"))


async def _vocab_size(http: HttpClient, model: dict[str, Any]) -> int | None:
    """From the list of models (llama.cpp), or from what Freehold and vLLM say of their tokenizer."""
    meta = model.get("meta")
    found = _count(meta.get("n_vocab")) if isinstance(meta, dict) else None
    return found or _count((await _json_at(http, "/tokenizer_info")).get("vocab_size"))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


async def _json_at(http: HttpClient, path: str) -> dict[str, Any]:
    """The object at a path; empty if there is none."""
    try:
        found = msgspec.json.decode((await http.fetch(path)).body)
    except (FailedRequestError, *NOT_JSON):
        return {}
    return found if isinstance(found, dict) else {}
