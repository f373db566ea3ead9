"""Query parameters of lists."""

from collections.abc import Collection

from starlette.requests import Request

from freehold.errors import RequestError, shown


def read_query(request: Request, names: Collection[str]) -> dict[str, str]:
    """The query's parameters.

    Raises:
        RequestError: one is unknown, or comes twice.
    """
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in names:
            known = ", ".join(names)
            raise RequestError(f"unknown parameter {shown(name)}; this list takes {known}", param=name[:100])
        if name in given:
            raise RequestError(f"{name} comes twice; send it once", param=name)
        given[name] = value
    return given


def read_limit(given: dict[str, str], most: int, default: int) -> int:
    """How many entries are asked for.

    Raises:
        RequestError: no number, or out of bounds.
    """
    text = given.get("limit", str(default))
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= most:
        raise RequestError(f"limit is {shown(text)}; it must be from 1 to {most}", param="limit")
    return int(text)
