"""What is complete of a JSON object that was cut short."""

import re

_TOKEN = re.compile(
    r'[\s:]*(?P<token>[{}\[\],]|"(?:[^"\\]|\\.)*"|true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\d.eE+-]))',
    re.DOTALL,
)


def partial_object(text: str) -> str:
    """The members whose values are complete, and of the last value, if it is an object or list, what is complete of it.
    A number at the end counts as complete.

    Arguments:
        text: the beginning of JSON of an object, or all of it, which stays as it is.
    """
    end, closing = 0, ""  # where to cut, and what closes what is open there
    open_brackets: list[str] = []
    place = 0
    previous = ""
    while (match := _TOKEN.match(text, place)) is not None:
        token, place = match["token"], match.end()
        if token in "{[":
            open_brackets.append("}" if token == "{" else "]")
        elif token in "}]":
            open_brackets.pop()
        is_name = open_brackets[-1:] == ["}"] and previous in ("{", ",") and token not in ("{", "[", "}", "]")
        if token != "," and not is_name:
            end, closing = place, "".join(reversed(open_brackets))
        previous = token
    return text[:end] + closing or "{}"
