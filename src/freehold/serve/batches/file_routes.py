"""``/v1/files``."""

import sqlite3
from contextlib import suppress
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from freehold.errors import RequestError, shown
from freehold.serve.batches.queries import read_limit, read_query
from freehold.serve.batches.ranges import satisfiable
from freehold.serve.batches.schema import FileDeleted
from freehold.serve.batches.upload import Form, disk_error, receive
from freehold.serve.entrance.caller import caller_of
from freehold.serve.failure import HttpError
from freehold.serve.service import Service

MAX_PAGE = 10_000
LEAST_LASTS_S, MOST_LASTS_S = 3600, 30 * 86400
"""Bounds of ``expires_after``."""
_FILENAME_CHARACTERS = 255


async def create_file(request: Request) -> Response:
    """Upload a file."""
    service: Service = request.app.state.service
    state = service.batch_lane.state
    length = request.headers.get("content-length", "")
    await state.run(state.files.check_room, int(length) if length.isdecimal() else 0)
    partial = state.files.new_path()
    form = await receive(request, partial, service.config.max_file_bytes)
    try:
        lasts_s = _check(form)
        record = await state.run(
            lambda: state.files.upload(
                partial, owner=caller_of(request.scope).key_id, filename=_plain_name(form.filename), lasts_s=lasts_s
            )
        )
    except OSError as error:
        raise disk_error(error) from None
    except sqlite3.OperationalError as error:
        raise HttpError(507, f"the server can't write its records: {error}", code="disk_full") from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    return _json(record)


async def list_files(request: Request) -> Response:
    """A page of the caller's files, the newest first unless asked otherwise."""
    state = request.app.state.service.batch_lane.state
    given = read_query(request, ("purpose", "after", "limit", "order"))
    order = given.get("order", "desc")
    if order not in ("asc", "desc"):
        raise RequestError(f"order is {shown(order)}; it may be asc or desc", param="order")
    direction: Literal["asc", "desc"] = "asc" if order == "asc" else "desc"
    limit, owner = read_limit(given, MAX_PAGE, MAX_PAGE), caller_of(request.scope).key_id
    return _json(
        await state.run(
            lambda: state.files.page(
                owner, purpose=given.get("purpose"), after=given.get("after"), limit=limit, order=direction
            )
        )
    )


async def get_file(request: Request) -> Response:
    """What is known of a file."""
    state = request.app.state.service.batch_lane.state
    return _json(await state.run(state.files.get, caller_of(request.scope).key_id, request.path_params["file_id"]))


async def delete_file(request: Request) -> Response:
    """Remove a file."""
    state = request.app.state.service.batch_lane.state
    file_id = request.path_params["file_id"]
    await state.run(state.files.delete, caller_of(request.scope).key_id, file_id)
    return _json(FileDeleted(file_id))


async def get_content(request: Request) -> Response:
    """A file's bytes, or the ranges of them that are asked for."""
    state = request.app.state.service.batch_lane.state
    record = await state.run(state.files.get, caller_of(request.scope).key_id, request.path_params["file_id"])
    path = state.files.path(record.id)
    if not path.exists():
        raise HttpError(410, "the file's bytes have been removed from the server's disk", code="file_gone")
    headers = request.scope["headers"]
    if (asked := request.headers.get("range")) is not None:
        ranges = satisfiable(asked, record.bytes)
        kept = [(name, value) for name, value in headers if name != b"range"]
        request.scope["headers"] = kept if ranges is None else [*kept, (b"range", ranges.encode())]
    return FileResponse(path, media_type="application/octet-stream")


def _check(form: Form) -> int | None:
    """For how many seconds the file shall be kept; None leaves that to the server.

    Raises:
        RequestError: another purpose, or a time out of bounds.
    """
    purpose = form.fields.get("purpose")
    if purpose != "batch":
        said = "missing" if purpose is None else shown(purpose)
        raise RequestError(f"purpose is {said}; this server keeps files for batch alone", param="purpose")
    anchor, seconds = form.fields.get("expires_after[anchor]"), form.fields.get("expires_after[seconds]")
    if anchor is None and seconds is None:
        return None
    if anchor != "created_at":
        raise RequestError(f"expires_after[anchor] is {shown(anchor)}; it must be created_at", param="expires_after")
    if seconds is None or not seconds.isdecimal() or len(seconds) > 9:
        raise RequestError(f"expires_after[seconds] is {shown(seconds)}; send a whole number", param="expires_after")
    check_lasts(int(seconds), "expires_after")
    return int(seconds)


def check_lasts(seconds: int, param: str) -> None:
    """Refuse a time that no file is kept for.

    Raises:
        RequestError: out of bounds.
    """
    if not LEAST_LASTS_S <= seconds <= MOST_LASTS_S:
        raise RequestError(
            f"{param} is {seconds} seconds; it must be from {LEAST_LASTS_S} to {MOST_LASTS_S}", param=param
        )


def _plain_name(filename: str) -> str:
    """A name that may be shown, and is no path."""
    name = filename.replace("\\", "/").rpartition("/")[2]
    printable = "".join(char if char.isprintable() else "?" for char in name)
    return printable[:_FILENAME_CHARACTERS] or "file"


def _json(struct: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(struct), media_type="application/json")
