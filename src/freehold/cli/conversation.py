"""Reading what a person says, and saying what a model answers."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from freehold.errors import ConfigError, RequestError, ResourceError, printable

if TYPE_CHECKING:
    from freehold.text.params import SamplingParams

Chat = list[dict[str, str]]
Answer = Callable[[Sequence[dict[str, str]], "SamplingParams"], Iterator[str]]

COMMANDS = {"/new": "starts over", "/exit, /quit, Ctrl-D": "leave", "Ctrl-C": "stops an answer", "/help": "lists these"}
LEAVING = ("/exit", "/quit", "/bye")


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during an answer. `said` is what came before."""

    def __init__(self, said: str) -> None:
        super().__init__()
        self.said = said


def converse(answer: Answer, system: Chat, params: "SamplingParams", title: str) -> bool:
    """Read, answer, remember, until the person leaves. An answer that fails is told, and the conversation goes on.

    Returns:
        Whether every answer succeeded.

    Raises:
        ConfigError: the input isn't text.
    """
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        import readline  # noqa: F401  gives `input` line editing and a history

        print(f"{title}. {_commands()}.", file=sys.stderr)
    else:
        _expect_utf8()
    messages = list(system)
    succeeded = True
    while (text := _read_line(is_terminal)) is not None and text not in LEAVING:
        if text == "/new":
            messages = list(system)
        elif text.startswith("/") and " " not in text:
            known = "" if text == "/help" else f"{text} isn't a command. "
            print(f"{known}{_commands()}.", file=sys.stderr)
        elif text:
            try:
                with _without_echo(is_terminal):
                    said = say(answer([*messages, user(text)], params))
            except (RequestError, ResourceError) as error:
                succeeded = False
                remedy = " (/new starts over)" if is_terminal and len(messages) > len(system) else ""
                print(f"freehold: {printable(str(error))}{remedy}", file=sys.stderr)
                continue
            except Interrupted as stopped:
                said = stopped.said
                print("[stopped]", file=sys.stderr)
            messages += [user(text), {"role": "assistant", "content": said}]
    return succeeded


@contextmanager
def _without_echo(is_terminal: bool) -> Iterator[None]:
    """What a person types meanwhile isn't written between the words of an answer: the next prompt shows it."""
    if not is_terminal:
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin)
    silent = before.copy()
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def say(pieces: Iterator[str]) -> str:
    """Print an answer as it comes. Returns what was said.

    Raises:
        Interrupted: Ctrl-C, which ends the answer.
    """
    said: list[str] = []
    try:
        for piece in pieces:
            said.append(piece)
            print(piece, end="", flush=True)
    except KeyboardInterrupt:
        print(flush=True)
        raise Interrupted("".join(said)) from None
    except BaseException:
        # What is printed next, an error, starts on a line of its own.
        if said:
            print(flush=True)
        raise
    print(flush=True)
    return "".join(said)


def user(text: str) -> dict[str, str]:
    """A message of the person."""
    return {"role": "user", "content": text}


def check_text(text: str, what: str) -> str:
    """Return `text` if it is Unicode: the system hands over bytes that aren't as lone surrogates.

    Raises:
        ConfigError: it isn't.
    """
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ConfigError(f"{what} is not UTF-8; convert it first, as in `iconv -f latin1 -t utf-8`")
    return text


def read_input() -> str:
    """All of standard input.

    Raises:
        ConfigError: it isn't UTF-8, or empty.
    """
    _expect_utf8()
    text = check_text(sys.stdin.read(), "input")
    if not text.strip():
        raise ConfigError("input is empty; send the prompt through standard input, or give it as PROMPT")
    return text


def _read_line(is_terminal: bool) -> str | None:
    """The next line; None if there is none."""
    try:
        text = input("> " if is_terminal else "")
    except (EOFError, KeyboardInterrupt):
        if is_terminal:
            print(file=sys.stderr)  # the shell's prompt starts a line
        return None
    return check_text(text, "input").strip()


def _expect_utf8() -> None:
    """Whatever the locale, and whatever comes: `check_text` finds what isn't."""
    sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]


def _commands() -> str:
    return ", ".join(f"{name} {what}" for name, what in COMMANDS.items())
