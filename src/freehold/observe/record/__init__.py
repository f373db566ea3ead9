"""The flight recorder: what was asked and answered, in a bounded ring of files, and how to read it back."""

from freehold.observe.record.reader import RecordedRequest, Recording, open_recording

__all__ = ["RecordedRequest", "Recording", "open_recording"]
