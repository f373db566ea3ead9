"""Replay: ask an engine again what was recorded, and compare to the bit."""
