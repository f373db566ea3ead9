"""Every error that Freehold raises on purpose.

A message says what was wrong, with which value, and what to do. `UserError` ends a command with exit code 2 and one
sentence; `RequestError` becomes an HTTP 400 that names the field.
"""

OUT_OF_MEMORY = (
    "out of memory: lower --kv-cache-memory-bytes or --max-num-batched-tokens, use a smaller model, or give the "
    "process more memory (`ulimit -v` shows a limit of its address space)"
)


class FreeholdError(Exception):
    """Base of all errors raised on purpose."""


class UserError(FreeholdError):
    """Something the person at the keyboard can put right: shown as one sentence, exit code 2."""


class ConfigError(UserError):
    """A flag, environment variable or configuration key is unknown or has an unusable value."""


class ModelNotFoundError(UserError):
    """No model under that name, path or repository."""


class ModelFileError(UserError):
    """A model file is truncated, malformed or hostile. The message names the file and the key or tensor."""


class UnsupportedModelError(UserError):
    """A well-formed model that Freehold doesn't run. The message names the key and the value."""


class DownloadError(UserError):
    """A model can't be fetched: network, index or hub refuse, or what came isn't what was pinned."""


class ResourceError(UserError):
    """Memory, disk, port or another resource of the machine doesn't suffice. The message names the setting."""


class JournalError(UserError):
    """A batch's journal can't be used for this run. The message names the file and says what differs."""


class StateError(UserError):
    """A SQLite file of ours (keys and usage, batches, a load test) can't be read or written. The message names it."""


class RecordingError(UserError):
    """A recording can't be written or read. The message names the folder or file."""


class RequestError(FreeholdError):
    """A request is wrong.

    Attributes:
        param: the request's field, as the client spelled it.
        code: a short machine-readable reason, such as ``context_length_exceeded``.
    """

    def __init__(self, message: str, *, param: str | None = None, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class GrammarError(FreeholdError):
    """A grammar can't be compiled, or can't be followed any further."""


class EngineError(FreeholdError):
    """The engine failed, is shutting down, or takes no more requests for now.

    Attributes:
        code: a short machine-readable reason, such as ``engine_stopped``.
        retry_after_s: when it makes sense to try again, in seconds; None if nobody knows.
    """

    def __init__(self, message: str, *, code: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_s = retry_after_s


class LimitError(FreeholdError):
    """A key has used what it may use for now.

    Attributes:
        code: ``rate_limit_exceeded``, or ``insufficient_quota`` if a budget of tokens is spent.
        retry_after_s: when it makes sense to try again, in seconds; None if nobody knows.
    """

    def __init__(self, message: str, *, code: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_s = retry_after_s


def shown(value: object, *, most: int = 100) -> str:
    """A value as it may stand in a message: escaped, and short even if a hostile file or client made it long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, a list nested as deep
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def printable(text: str) -> str:
    """Text of strangers as a terminal may have it: control characters and halves of surrogate pairs are escaped."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode() for char in text
    )
