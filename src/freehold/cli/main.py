"""Where the process begins: signals first, then the commands, whose imports take a moment."""

import errno
import io
import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import click

PROGRAM = "freehold"

EXIT_FAILED = 1
EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130
EXIT_NO_READER = 141
EXIT_TERMINATED = 143


class Terminated(KeyboardInterrupt):
    """SIGTERM came to a command that ends as after Ctrl-C: with what there is."""


def main() -> None:
    """Run the command line. What a person can put right ends in one sentence on stderr and exit code 2."""
    if sys.argv[1:2] == ["serve"]:
        signal.signal(signal.SIGINT, _leave)
        signal.signal(signal.SIGTERM, _leave)
    else:
        signal.signal(signal.SIGTERM, _terminate)
    from freehold.cli import streams

    try:
        try:
            _run_or_say()
        except Terminated:
            _fail("terminated", EXIT_TERMINATED)
        except KeyboardInterrupt:
            _fail("interrupted", EXIT_INTERRUPTED)
        finally:
            streams.flush()
    except BrokenPipeError:
        # End as a program does that SIGPIPE kills: whoever read the output, such as `head`, wants no more of it. The
        # signal itself would kill at any closed connection too, and leave children and unfinished files behind.
        streams.give_up()
        sys.exit(EXIT_NO_READER)
    except streams.OutputError as error:
        streams.give_up()
        _fail(str(error), EXIT_FAILED)


def _run_or_say() -> None:
    """Run the command, and say what a person can put right."""
    from freehold.cli import streams
    from freehold.errors import OUT_OF_MEMORY, EngineError, FreeholdError, printable

    streams.settle()
    try:
        _run()
    except streams.OutputError:
        raise
    except FreeholdError as error:
        _fail(printable(str(error)), EXIT_FAILED if isinstance(error, EngineError) else EXIT_USER_ERROR)
    except (MemoryError, OSError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        _fail(OUT_OF_MEMORY, EXIT_USER_ERROR)


def _run() -> None:
    import click

    from freehold import resolve
    from freehold.cli.commands import app

    if sys.argv[1:2] != ["serve"] and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        # Until here `freehold.__main__` has it: an exception may get lost in the machinery of imports.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if resolve.is_shell_completing():
        app(prog_name=PROGRAM, complete_var=resolve.COMPLETION_VARIABLE)
    try:
        # Not `app()`, which has words of its own for Ctrl-C, and exit codes for output that nobody reads.
        with app.make_context(PROGRAM, sys.argv[1:]) as context:
            app.invoke(context)
    except click.exceptions.Exit as leaving:
        sys.exit(leaving.exit_code)
    except click.ClickException as mistake:
        _explain(mistake)


def _explain(mistake: "click.ClickException") -> NoReturn:
    """Say what is wrong with the command line, and where to read more."""
    from freehold.cli import streams
    from freehold.errors import printable

    text = io.StringIO()
    mistake.show(text)
    streams.last_word(printable(text.getvalue()).rstrip())
    sys.exit(mistake.exit_code)


def _fail(message: str, code: int) -> NoReturn:
    from freehold.cli import streams

    streams.last_word(f"freehold: {message}")
    sys.exit(code)


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    # Threads need stacks; Python and C++ say so in words of their own.
    refused = ("can't start new thread", "Resource temporarily unavailable")
    return isinstance(error, MemoryError) or any(words in str(error) for words in refused)


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    """Leave through every `finally`, so that children end and unfinished files go."""
    sys.exit(EXIT_TERMINATED)


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    """End a server that doesn't serve yet. Once it does, it drains instead (`freehold.serve.server`)."""
    os._exit(0)
