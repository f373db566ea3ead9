"""Markup in text that comes bit by bit."""


def beginning_at_end(text: str, tag: str) -> int:
    """Length of the longest end of a text that a tag begins with and doesn't end with."""
    longest = min(len(tag) - 1, len(text))
    return next((size for size in range(longest, 0, -1) if text.endswith(tag[:size])), 0)
