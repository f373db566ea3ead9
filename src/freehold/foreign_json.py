"""JSON that others wrote: servers that aren't ours, files that people edit."""

import msgspec

NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding it may raise: it is malformed, not UTF-8, not what was expected, or nested as deep as a trap."""
