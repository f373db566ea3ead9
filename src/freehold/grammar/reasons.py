"""What llguidance says of a grammar, as one line that a client can read."""

import re
from itertools import pairwise

_KNOWN_REASONS = {
    "oneOf constraints are not supported": "oneOf has schemas that may hold together, as far as can be told; use anyOf",
    'min/maxProperties only supported when all keys listed in "properties" are required': "minProperties and "
    "maxProperties can be enforced only if all properties are required",
    "patternProperty regexes": "patternProperties has two patterns that may match the same name; only ones that can't "
    "are supported",
    "circular references with sibling keys": "$ref leads back to itself beside other keywords; put them elsewhere",
}

MAX_REASON = 300
"""Characters."""

MAX_PLACE = 40
"""Characters of a regular expression that show where it is wrong."""

_REGEX = re.compile(r"regex parse error:\n(?P<shown>.*?)\nerror: (?P<reason>[^\n]*)", re.DOTALL)
_REPEATED_REGEX = re.compile(r'.*?invalid regex ".*" \(in regex\): ', re.DOTALL)
_CARETS = re.compile(r" *\^[ ^]*")
_QUOTED_LINE = re.compile(r"\s*[0-9]+ \||\s*\^+\s*$")
_POSITION = re.compile(r"^(?:at )?([0-9]+)\(([0-9]+)\): ")


def reason_of(text: str) -> str:
    """What llguidance says, without what repeats the grammar."""
    for known, reason in _KNOWN_REASONS.items():
        if known in text:
            return reason
    if match := _REGEX.search(text):
        return _of_regex(match["shown"], match["reason"])[:MAX_REASON]
    _, _, schema_reason = text.partition("failed to compile JSON schema: ")
    if schema_reason:
        return schema_reason.split("\n")[0][:MAX_REASON]
    lines = [line for line in _REPEATED_REGEX.sub("", text).split("\n") if not _QUOTED_LINE.match(line)]
    told = " ".join(" ".join(lines).split())
    return _POSITION.sub(r"line \1, column \2: ", told)[:MAX_REASON]


def _of_regex(shown: str, reason: str) -> str:
    """What is wrong with a regular expression, and where: `shown` has it, and carets below the place."""
    lines = shown.split("\n")
    for line, carets in pairwise(lines):
        if _CARETS.fullmatch(carets):
            # Not a count of characters: some of the client's were escaped.
            place = line[carets.index("^") :]
            return f"{reason}; at {place[:MAX_PLACE]!r}" if place else f"{reason}; at its end"
    return reason
