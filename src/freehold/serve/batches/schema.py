"""Bodies of the Batch API, in OpenAI's shapes, and the lines of input and output files. Times are Unix seconds."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from freehold.serve.schema import Body

BatchStatus = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
]

LIVE: tuple[BatchStatus, ...] = ("validating", "in_progress", "finalizing", "cancelling")
"""A batch in one of these goes on by itself; in the others it has ended."""

FilePurpose = Literal["batch", "batch_output"]


class FileObject(msgspec.Struct, kw_only=True):
    """A file: uploaded as input of a batch, or made by one."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: FilePurpose
    expires_at: int | None = None
    object: Literal["file"] = "file"
    status: Literal["processed"] = "processed"


class FileDeleted(msgspec.Struct):
    """Answer of ``DELETE /v1/files/{id}``."""

    id: str
    deleted: bool = True
    object: Literal["file"] = "file"


class ExpiresAfter(msgspec.Struct, forbid_unknown_fields=True):
    """When a file goes by itself."""

    anchor: Literal["created_at"]
    seconds: int


class BatchRequest(Body, kw_only=True):
    """Body of ``POST /v1/batches``."""

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None
    output_expires_after: ExpiresAfter | None = None


class RequestCounts(msgspec.Struct):
    """Lines of a batch: all, answered with 200, answered otherwise or not at all."""

    total: int = 0
    completed: int = 0
    failed: int = 0


class LineFault(msgspec.Struct, kw_only=True):
    """What is wrong with an input file; `line` counts from 1."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class BatchErrors(msgspec.Struct):
    """Why a batch failed before any of its lines ran."""

    data: list[LineFault]
    object: Literal["list"] = "list"


class BatchObject(msgspec.Struct, kw_only=True):
    """A batch and how far it has come."""

    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    status: BatchStatus
    created_at: int
    expires_at: int
    metadata: dict[str, str] | None = None
    errors: BatchErrors | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: RequestCounts = msgspec.field(default_factory=RequestCounts)
    object: Literal["batch"] = "batch"


class FilePage(msgspec.Struct, kw_only=True):
    """A part of the list of files. The next one begins after `last_id`."""

    data: list[FileObject]
    has_more: bool
    first_id: str | None
    last_id: str | None
    object: Literal["list"] = "list"

    @classmethod
    def of(cls, files: Sequence[FileObject], limit: int) -> "FilePage":
        """The first `limit` of the files, of which one more than that were looked for."""
        data = list(files[:limit])
        first_id, last_id = (data[0].id, data[-1].id) if data else (None, None)
        return cls(data=data, has_more=len(files) > limit, first_id=first_id, last_id=last_id)


class BatchPage(msgspec.Struct, kw_only=True):
    """A part of the list of batches, likewise."""

    data: list[BatchObject]
    has_more: bool
    first_id: str | None
    last_id: str | None
    object: Literal["list"] = "list"

    @classmethod
    def of(cls, batches: Sequence[BatchObject], limit: int) -> "BatchPage":
        """The first `limit` of the batches, of which one more than that were looked for."""
        data = list(batches[:limit])
        first_id, last_id = (data[0].id, data[-1].id) if data else (None, None)
        return cls(data=data, has_more=len(batches) > limit, first_id=first_id, last_id=last_id)


class InputLine(Body, kw_only=True):
    """A line of an input file: one request. Its body is checked when it runs, as one that came over HTTP is."""

    custom_id: str
    method: str
    url: str
    body: msgspec.Raw


class LineResponse(msgspec.Struct):
    """What the request was answered with."""

    status_code: int
    request_id: str
    body: msgspec.Raw


class LineError(msgspec.Struct):
    """Why a request wasn't answered at all."""

    code: str
    message: str


class OutputLine(msgspec.Struct):
    """A line of an output or error file."""

    id: str
    custom_id: str
    response: LineResponse | None
    error: LineError | None = None
