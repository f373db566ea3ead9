"""Tokenizers for tests: what a server's ``/tokenize`` would say."""

import re


class Words:
    """A token for each word with the space before it; others take more.

    Attributes:
        num_bos: ids before any prompt.
        long: words that are two tokens, wherever they stand.
        long_at_start: words that are two tokens at the start of a text.
        joined: pairs of words that are one token.
        num_asked: texts so far.
    """

    def __init__(self, num_bos=0, long=(), long_at_start=(), joined=()):
        self.num_bos = num_bos
        self.num_asked = 0
        self._long = frozenset(long)
        self._long_at_start = frozenset(long_at_start)
        self._joined = frozenset(joined)
        self._ids = {}

    def tokenize(self, text):
        self.num_asked += 1
        ids = [0] * self.num_bos
        before = ""
        for piece in re.findall(r" ?[^ ]+| +", text):
            word = piece.strip()
            if (before, word) in self._joined:
                before = ""
                continue
            is_long = word in self._long or (piece == word and word in self._long_at_start)
            ids += [self._id(piece), self._id(piece + "~")] if is_long else [self._id(piece)]
            before = word
        return ids

    def count_chat(self, messages):
        """A template that writes three tokens around each message and two at the end."""
        return sum(len(self.tokenize(each["content"])) - self.num_bos + 3 for each in messages) + 2

    def _id(self, piece):
        return self._ids.setdefault(piece, len(self._ids) + 1)
