"""``POST /debug/profile``: profiles the next steps, waits for them, and answers with where their time went."""

from typing import Literal, get_args

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from freehold.errors import RequestError
from freehold.observe import render
from freehold.observe.profile import MAX_SPANS, MAX_STEPS, StepProfile
from freehold.observe.report import Report
from freehold.observe.tally import Tally
from freehold.observe.trace import chrome_trace
from freehold.serve import body as bodies
from freehold.serve.failure import HttpError
from freehold.serve.lanes import LONG_BYTES
from freehold.serve.operation.profiler import Wanted
from freehold.serve.reply import while_connected
from freehold.serve.schema import Body
from freehold.serve.service import Service

MAX_SECONDS = 300.0
DEFAULT_SECONDS = 60.0
"""How long to wait for steps if only their number is given."""

MAX_BODY_BYTES = 1 << 12

Form = Literal["json", "text", "trace"]
FORMS: tuple[Form, ...] = get_args(Form)


class ProfileRequest(Body, kw_only=True):
    """How much to profile: at least one of the two; whichever is reached first ends it."""

    steps: int | None = None
    seconds: float | None = None


class ProfileAnswer(Report, frozen=True, kw_only=True):
    """A report, and what ended the profile: that its steps were done, or that its time was over."""

    ended_by: Literal["steps", "seconds"]


_decoder = msgspec.json.Decoder(ProfileRequest)


async def profile(request: Request) -> Response:
    """Profile the engine; the query's ``format`` says how to answer."""
    service: Service = request.app.state.service
    if service.profiler is None:
        raise HttpError(
            404, "steps aren't profiled here; start the server with `freehold serve --profile`", code="profiling_off"
        )
    form = _form(request)
    body, _ = await bodies.receive(request, MAX_BODY_BYTES, service.lanes, _decoder)
    wanted = _wanted(body, form)
    if reason := service.not_ready():
        raise reason
    found = await while_connected(request.receive, service.profiler.profile(wanted))
    return await service.lanes.run(LONG_BYTES, _response, found, wanted, form)


def _form(request: Request) -> Form:
    given = request.query_params.get("format", "json")
    for form in FORMS:
        if given == form:
            return form
    raise RequestError(f"format is {given[:60]!r}; it is json, text or trace", param="format")


def _wanted(body: ProfileRequest, form: Form) -> Wanted:
    """
    Raises:
        RequestError: neither field is given, or one is out of bounds.
    """
    steps, seconds = body.steps, body.seconds
    if steps is None and seconds is None:
        raise RequestError(
            f"the body says neither steps (1 to {MAX_STEPS}) nor seconds (up to {MAX_SECONDS:g}); send one of them",
            param="steps",
            code="missing_field",
        )
    if steps is not None and not 1 <= steps <= MAX_STEPS:
        raise RequestError(f"steps is {steps}; it must be from 1 to {MAX_STEPS}", param="steps")
    if seconds is not None and not 0 < seconds <= MAX_SECONDS:
        raise RequestError(f"seconds is {seconds:g}; it must be above 0 and at most {MAX_SECONDS:g}", param="seconds")
    return Wanted(
        max_steps=MAX_STEPS if steps is None else steps,
        max_spans=MAX_SPANS if form == "trace" else 0,
        seconds=DEFAULT_SECONDS if seconds is None else seconds,
    )


def _response(found: StepProfile, wanted: Wanted, form: Form) -> Response:
    report = Tally(found).report()
    if form == "text":
        return Response(render.text(report), media_type="text/plain; charset=utf-8")
    if form == "trace":
        headers = {"content-disposition": 'attachment; filename="freehold-trace.json"'}
        return Response(chrome_trace(found, report), media_type="application/json", headers=headers)
    answer = ProfileAnswer(
        ended_by="steps" if found.num_steps >= wanted.max_steps else "seconds",
        **{name: getattr(report, name) for name in Report.__struct_fields__},
    )
    return Response(msgspec.json.encode(answer), media_type="application/json")
