"""A profile as a Chrome trace, for https://ui.perfetto.dev or chrome://tracing.

A track for the steps, one for each thread's phases, and one for the engine's loop. The format is described in "Trace
Event Format" of the Chromium project; times are in microseconds.
"""

from collections.abc import Iterator
from itertools import chain, pairwise
from typing import Any

import msgspec

from freehold.observe.profile import Beat, StepProfile
from freehold.observe.report import Report

_PROCESS = 1
_STEPS, _LOOP, _FIRST_THREAD = 1, 2, 3
"""Tracks, in the order in which they are shown."""

_encoder = msgspec.json.Encoder()


class _OtherData(msgspec.Struct, frozen=True):
    report: Report


class _Head(msgspec.Struct, frozen=True):
    """What a trace holds beside its events; viewers show it as text."""

    otherData: _OtherData  # noqa: N815  the format's name


def chrome_trace(profile: StepProfile, report: Report) -> bytes:
    """The trace as JSON, which brings the profile's report along. Takes about a second for the largest profile."""
    head = _encoder.encode(_Head(_OtherData(report))).removesuffix(b"}")
    events = chain(_names(profile), _steps(profile), _loop(profile), _spans(profile))
    return head + b',"displayTimeUnit":"ms","traceEvents":[\n' + b",\n".join(map(_encoder.encode, events)) + b"\n]}\n"


def report_in(trace: bytes) -> Report:
    """The report that a trace brings along.

    Raises:
        msgspec.DecodeError: what is given is no such trace.
    """
    return msgspec.json.decode(trace, type=_Head).otherData.report


def _names(profile: StepProfile) -> Iterator[dict[str, Any]]:
    threads = {_FIRST_THREAD + thread: f"thread {thread}" for thread in range(profile.num_threads)}
    yield {"ph": "M", "name": "process_name", "pid": _PROCESS, "args": {"name": "freehold engine"}}
    for track, name in {_STEPS: "steps", _LOOP: "engine loop", **threads}.items():
        yield {"ph": "M", "name": "thread_name", "pid": _PROCESS, "tid": track, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": _PROCESS, "tid": track, "args": {"sort_index": track}}


def _steps(profile: StepProfile) -> Iterator[dict[str, Any]]:
    for number, step in enumerate(profile.each_step()):
        arguments = {"step": number, "requests": step.num_rows, "tokens": step.num_tokens}
        yield _event(_STEPS, f"step {number}", step.start_ns, step.end_ns, arguments)


def _loop(profile: StepProfile) -> Iterator[dict[str, Any]]:
    beats = list(profile.each_beat())
    if beats and not profile.num_lost_beats:
        beats.append(Beat(beats[-1].place, profile.end_ns))
    for beat, following in pairwise(beats):
        yield _event(_LOOP, profile.places[beat.place], beat.start_ns, following.start_ns, {})


def _spans(profile: StepProfile) -> Iterator[dict[str, Any]]:
    for span in profile.each_span():
        arguments = {
            "step": span.step,
            "layer": span.layer,
            "items": span.num_items,
            "busy_us": span.busy_ns / 1000,
        }
        name = profile.phases[span.phase]
        yield _event(_FIRST_THREAD + span.thread, name, span.start_ns, span.end_ns, arguments)


def _event(track: int, name: str, start_ns: int, end_ns: int, arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "pid": _PROCESS,
        "tid": track,
        "ts": start_ns / 1000,
        "dur": (end_ns - start_ns) / 1000,
        "args": arguments,
    }
