"""Profiles of steps, taken in the core's thread: when they begin and end, and what the engine's loop did meanwhile."""

import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import get_args

from freehold.backends.base import DeviceProfile, NumericFormat, StepId, StepProfiler
from freehold.engine.place import LoopPlace
from freehold.engine.runner import Runner
from freehold.errors import UserError
from freehold.observe.profile import (
    IDLE,
    MachineLimits,
    NotProfiled,
    Peak,
    Profiled,
    ProfileEnd,
    ProfileId,
    StartProfile,
    StepProfile,
)

OnProfile = Callable[[ProfileEnd], None]
"""Takes a profile that has ended. Called in the core's thread; must not block or raise."""

PLACES = (*get_args(LoopPlace), IDLE)
_PLACE_NUMBERS = {place: number for number, place in enumerate(PLACES)}
_BEATS_PER_STEP, _MORE_BEATS = 12, 1024


@dataclass(slots=True)
class _Running:
    """A profile that is being taken.

    Attributes:
        first_step: the first that it holds; None until it was submitted.
        num_done: steps that it holds and that were collected.
        beats: place and time, one after the other.
    """

    message: StartProfile
    profiler: StepProfiler
    max_beats: int
    first_step: StepId | None = None
    num_done: int = 0
    num_lost_beats: int = 0
    beats: "array[int]" = field(default_factory=lambda: array("q"))

    @property
    def is_complete(self) -> bool:
        return self.num_done >= self.message.max_steps


class Profiling:
    """Takes profiles, one at a time.

    The backend may be asked to start and stop only while no step waits for masks; in the core's loop, that is where it
    takes messages.

    Args:
        num_threads: that compute.
        clock_ns: the backend's clock.
    """

    def __init__(
        self,
        runner: Runner,
        num_threads: int,
        on_profile: OnProfile,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._runner = runner
        self._num_threads = num_threads
        self._on_profile = on_profile
        self._clock_ns = clock_ns
        self._limits: MachineLimits | None = None
        self._running: _Running | None = None

    def prepare(self) -> None:
        """Measure what the machine can do at most, if that isn't known. Nothing else may run meanwhile.

        Raises:
            ConfigError: too little memory to measure with.
        """
        if self._limits is None and self._runner.profiler is not None:
            self._limits = measured_limits(self._num_threads, self._runner.numeric_format)

    def start(self, message: StartProfile, *, is_idle: bool) -> None:
        """Begin a profile, or say why not.

        Args:
            is_idle: the engine has no request, so that there is a moment for measuring.
        """
        profiler = self._runner.profiler
        if profiler is None:
            why = "this backend doesn't time its steps; load the model with the backend 'cpu'"
            self._refuse(message.profile_id, "profiling_unsupported", why)
            return
        try:
            if is_idle:
                self.prepare()
        except UserError as error:
            self._refuse(message.profile_id, "limits_unknown", f"the machine's limits can't be measured: {error}")
            return
        if self._limits is None:
            why = "the machine's limits aren't known, and can't be measured while requests run; start a first profile "
            self._refuse(message.profile_id, "limits_unknown", f"{why}when none does")
            return
        profiler.start(message.max_steps, message.max_spans)
        self._running = _Running(message, profiler, _BEATS_PER_STEP * message.max_steps + _MORE_BEATS)

    def stop(self, profile_id: ProfileId) -> None:
        """End a profile now, if it is the one that runs."""
        if self._running is not None and self._running.message.profile_id == profile_id:
            self._end(self._running, self._running.profiler)

    def end_if_complete(self) -> None:
        """End the profile that runs if all its steps are done."""
        if self._running is not None and self._running.is_complete:
            self._end(self._running, self._running.profiler)

    def enter(self, place: str) -> None:
        """The loop goes on to another place."""
        if (running := self._running) is not None:
            if len(running.beats) < 2 * running.max_beats:
                running.beats.extend((_PLACE_NUMBERS[place], self._clock_ns()))
            else:
                running.num_lost_beats += 1

    def submitted(self, step_id: StepId) -> None:
        """A step is on its way, or a round that begins with it."""
        if self._running is not None and self._running.first_step is None:
            self._running.first_step = step_id

    def collected(self, step_id: StepId, num_steps: int) -> None:
        """A step is done, or a round of so many that began with it."""
        running = self._running
        if running is not None and running.first_step is not None and step_id >= running.first_step:
            running.num_done += num_steps

    def _refuse(self, profile_id: ProfileId, code: str, message: str) -> None:
        self._on_profile(NotProfiled(profile_id, code, message))

    def _end(self, running: _Running, profiler: StepProfiler) -> None:
        assert self._limits is not None
        self._running = None
        profile = _packed(profiler.stop(), running, self._limits, self._clock_ns())
        self._on_profile(Profiled(running.message.profile_id, profile))


def measured_limits(num_threads: int, form: NumericFormat) -> MachineLimits:
    """What the machine can do at most in a backend's numeric formats. Takes a second or two.

    Raises:
        ConfigError: too little memory to measure with.
    """
    # Only a profiled engine needs these.
    from freehold.limits import measure_limits
    from freehold.roofs import attention_format, linear_format

    limits = measure_limits(num_threads, form.isa)

    def peak(name: str) -> Peak:
        return Peak(name, limits.peaks[name].operations_per_s, limits.peaks[name].holds)

    return MachineLimits(
        isa=form.isa,
        num_threads=num_threads,
        measured_ns=time.monotonic_ns(),
        bytes_per_s=limits.dram_bytes_per_s,
        linear=peak(linear_format(limits, "int8" if form.activations == "int8" else "float")),
        attention=peak(attention_format(limits)),
    )


def _packed(device: DeviceProfile, running: _Running, limits: MachineLimits, now_ns: int) -> StepProfile:
    """For the journey. The array of beats becomes relative to the device's start."""
    beats = running.beats
    for index in range(1, len(beats), 2):
        beats[index] -= device.start_ns
    # The backend goes on counting steps after the last that was asked for, until it is stopped.
    num_skipped_steps = 0 if running.is_complete else device.num_skipped_steps
    return StepProfile(
        phases=device.phases,
        places=PLACES,
        num_threads=limits.num_threads,
        steps=device.steps.tobytes(),
        work=device.work.tobytes(),
        busy=device.busy.sum(axis=0).tobytes(),
        spans=device.spans.tobytes(),
        beats=beats.tobytes(),
        start_ns=device.start_ns,
        end_ns=now_ns - device.start_ns,
        num_skipped_steps=num_skipped_steps,
        num_lost_spans=device.num_lost_spans,
        num_lost_beats=running.num_lost_beats,
        limits=limits,
    )
