"""Profiles of the native device's steps."""

from freehold import _native
from freehold.backends.base import DeviceProfile


class CpuProfiler:
    """Implements `freehold.backends.base.StepProfiler`."""

    def __init__(self, device: _native.Device) -> None:
        self._device = device

    def start(self, max_steps: int, max_spans: int) -> None:
        """Record the next steps."""
        self._device.start_profile(max_steps, max_spans)

    def stop(self) -> DeviceProfile:
        """What was recorded. Raises ValueError if nothing was started."""
        found = self._device.stop_profile()
        if found is None:
            raise ValueError("no profile was started")
        phases, start_ns, steps, work, busy, spans, num_skipped_steps, num_lost_spans = found
        return DeviceProfile(
            phases=tuple(phases),
            start_ns=start_ns,
            steps=steps,
            work=work,
            busy=busy,
            spans=spans,
            num_skipped_steps=num_skipped_steps,
            num_lost_spans=num_lost_spans,
        )
