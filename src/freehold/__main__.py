"""Where ``freehold`` and ``python -m freehold`` begin: with Ctrl-C, which may come while Python imports the rest."""

import os
import signal
import sys
from types import FrameType

_IS_SERVE = sys.argv[1:2] == ["serve"]


def _leave(_number: int, _frame: FrameType | None) -> None:
    """End as `freehold.cli.main` does later on. Nothing has begun that would have to be undone."""
    if not _IS_SERVE:
        os.write(2, b"freehold: interrupted\n")
    os._exit(0 if _IS_SERVE else 130)


if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell's background ignores it
    signal.signal(signal.SIGINT, _leave)

from freehold.cli.main import main  # noqa: E402

if __name__ == "__main__":
    main()
