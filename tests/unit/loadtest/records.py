"""Records and points made by hand."""

from typing import Any

import msgspec

from freehold.loadtest.measurement import Measurement
from freehold.loadtest.records import RequestRecord
from freehold.loadtest.results import Load, PointResult
from freehold.loadtest.summary import Wanted, summarize

CLOSED = Load(kind="closed", concurrency=1)


def record(started_s: float = 0.0, **fields: Any) -> RequestRecord:
    """A request of four tokens: the first after 0.1 s, the others 0.02 s after each other."""
    gaps = fields.get("gaps_s", [0.02] * 3)
    first_s = fields.get("first_s", started_s + 0.1)
    return RequestRecord(**{
        "request_id": "r",
        "conversation": 0,
        "turn": 0,
        "intended_s": started_s,
        "taken_up_s": started_s,
        "started_s": started_s,
        "first_s": first_s,
        "first_output_s": first_s,
        "ended_s": started_s + 0.1 + sum(gaps),
        "gaps_s": gaps,
        "num_input": 10,
        "num_output": len(gaps) + 1,
        "source": "usage",
        **fields,
    })  # fmt: skip


def measured(*records: RequestRecord, load: Load = CLOSED, **fields: Any) -> Measurement:
    ended_s = max((each.ended_s for each in records), default=1.0)
    began_s = min((each.intended_s for each in records), default=0.0)
    return Measurement(**{
        "load": load, "seed": 1, "duration_s": ended_s - began_s, "records": list(records), "lags_s": [0.0], **fields,
    })  # fmt: skip


def point(*records: RequestRecord, load: Load = CLOSED, wanted: Wanted | None = None, **fields: Any) -> PointResult:
    """The result of a point with one repeat."""
    return summarize([measured(*records, load=load, **fields)], wanted or Wanted())


def changed(result: PointResult, **fields: Any) -> PointResult:
    return msgspec.structs.replace(result, **fields)
