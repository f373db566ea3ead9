"""Strings that tokenizers stumble over, as many as wanted, the same for the same seed."""

import random
from collections.abc import Callable, Iterator

_CODE = (
    "def f(x: int) -> str:\n\treturn f'{x:>10}'\n",
    "for (size_t i = 0; i < n; ++i) { a[i] |= b[i] << 3; }\r\n",
    "SELECT * FROM t WHERE id IN (1, 22, 333) -- why?\n",
    '{"key": [1.5e-10, null, true], "pfad": "C:\\\\temp"}',
    "<div class='x'>&nbsp;</div><!-- ... -->",
    "    if __name__ == '__main__':\n        main()\n",
    "#include <vector>\ntemplate<typename T> using V = std::vector<T>;",
    "x=$((y+1)); echo \"${x}\" | sed -e 's/^\\s*//' >> /dev/null 2>&1",
)
_PROSE = (
    "The quick brown fox jumps over the lazy dog. ",
    "I'm sure they'll say we've won, won't they? She'd've gone! ",
    "Ça c'est l'été à Zürich — «naïve» façade, œuvre… ",
    "Straße, Übergrößenträger, ÄÖÜ äöü ß ẞ. ",
    "DON'T SHOUT, It'S rude; he'LL know. ",
    "Съешь же ещё этих мягких французских булок. ",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ",
    "Đây là một câu tiếng Việt có dấu. ",
)
_SCRIPTS = {
    "cjk": (0x4E00, 0x9FFF),
    "kana": (0x3041, 0x30FF),
    "hangul": (0xAC00, 0xD7A3),
    "arabic": (0x0620, 0x064A),
    "hebrew": (0x05D0, 0x05EA),
    "devanagari": (0x0900, 0x097F),
    "thai": (0x0E01, 0x0E5B),
    "cyrillic": (0x0400, 0x04FF),
    "greek": (0x0370, 0x03FF),
    "latin extended": (0x00C0, 0x024F),
    "georgian": (0x10A0, 0x10FF),
    "cherokee": (0x13A0, 0x13FD),
    "fullwidth": (0xFF01, 0xFF5E),
    "mathematical": (0x1D400, 0x1D7FF),
    "symbols": (0x2000, 0x2BFF),
    "astral": (0x10000, 0x1FFFF),
    "supplementary han": (0x20000, 0x2A6DF),
    "tags": (0xE0000, 0xE01EF),
    "anything": (0x0001, 0x10FFFF),
}
_EMOJI = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🇩🇪", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "❤️", "☃", "🧑🏿‍🚀", "#️⃣", "🫠"]
_SPACES = [" ", "  ", "\t", "\n", "\r\n", "\n\n", " ", "　", " ", "\u200b", "\x0b", "\x0c", "\x85", " ", "﻿"]
_DIGITS = ["0", "12", "123", "1234", "3.14159", "1,000,000", "٣٤٥", "१२३", "²³¹", "½", "Ⅳ", "①", "1e9", "0x1F", "𝟘𝟙"]
_MARKS = ["é", "é", "ñ", "각", "각", "ก็", "क्षि", "Å", "Å", "ﬁ", "ẛ̣", "a" + "̈" * 5]
_CONTRACTIONS = ["'s", "'S", "'t", "'re", "'VE", "'ll", "'LL", "’s", "'d", "''", "'x"]


def _char(draw: random.Random, low: int, high: int) -> str:
    while True:
        point = draw.randint(low, high)
        if not 0xD800 <= point <= 0xDFFF:
            return chr(point)


def _script(draw: random.Random) -> str:
    low, high = _SCRIPTS[draw.choice(list(_SCRIPTS))]
    return "".join(_char(draw, low, high) for _ in range(draw.randint(1, 8)))


def _run(draw: random.Random) -> str:
    unit = draw.choice(
        [" ", "\n", "\t", "\r\n", "0", "9", "a", "=", "-", "!", "的", "é", "\u0301", "😀", " \n", "_", "#"]
    )
    return unit * draw.choice([2, 3, 4, 7, 8, 15, 16, 17, 31, 64, 100])


def _control(draw: random.Random) -> str:
    return "".join(chr(draw.choice([*range(0x20), *range(0x7F, 0xA0)])) for _ in range(draw.randint(1, 4)))


def _piece_of(samples: tuple[str, ...]) -> Callable[[random.Random], str]:
    def cut(draw: random.Random) -> str:
        text = draw.choice(samples)
        begin = draw.randrange(len(text))
        return text[begin : begin + draw.randint(1, 40)]

    return cut


_MAKERS: list[Callable[[random.Random], str]] = [
    _piece_of(_CODE),
    _piece_of(_PROSE),
    _script,
    _run,
    _control,
    lambda draw: draw.choice(_EMOJI),
    lambda draw: draw.choice(_SPACES),
    lambda draw: draw.choice(_DIGITS),
    lambda draw: draw.choice(_MARKS),
    lambda draw: draw.choice(_CONTRACTIONS),
    lambda draw: draw.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ abcXYZ019"),
]


def varied_strings(seed: int, count: int) -> Iterator[str]:
    """Strings of one to six pieces: code, prose, all scripts, marks, controls, runs, digits, emoji, odd spaces."""
    draw = random.Random(seed)
    yield from ("", " ", "  ", "\n", "a", " a", "\x00")
    for _ in range(count - 7):
        yield "".join(draw.choice(_MAKERS)(draw) for _ in range(draw.randint(1, 6)))
