"""Find any of many literal strings in one pass."""

import re
from collections.abc import Iterable, Iterator

_Trie = dict[str, "_Trie"]
_END = ""


class LiteralFinder:
    """Leftmost-longest search for a fixed set of literals.

    The literals are merged into a prefix tree before they become a regular expression, so that hostile text such as
    ``<<<<…`` costs a few steps a character however many literals begin with ``<``.
    """

    def __init__(self, literals: Iterable[str]) -> None:
        self.literals = frozenset(literals)
        if "" in self.literals:
            raise ValueError("an empty literal matches everywhere")
        self._pattern = _compile(self.literals) if self.literals else None

    def __bool__(self) -> bool:
        return self._pattern is not None

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Matches from left to right, not overlapping; at one place the longest literal wins."""
        return iter(()) if self._pattern is None else self._pattern.finditer(text)

    def search(self, text: str, begin: int = 0) -> re.Match[str] | None:
        """The first match at or after a place."""
        return None if self._pattern is None else self._pattern.search(text, begin)

    def starts(self, text: str) -> bool:
        """Whether the text begins with one of the literals."""
        return self._pattern is not None and self._pattern.match(text) is not None


def _compile(literals: frozenset[str]) -> re.Pattern[str]:
    root: _Trie = {}
    for literal in literals:
        node = root
        for char in literal:
            node = node.setdefault(char, {})
        node[_END] = {}
    try:
        return re.compile(_regex(root))
    except RecursionError:
        # Thousands of literals that are each other's beginnings; a plain list of them is slower and means the same.
        return re.compile("|".join(map(re.escape, sorted(literals, key=len, reverse=True))))


def _regex(node: _Trie) -> str:
    """Pattern of a tree node: its branches, optional if a literal ends here (greedy, so the longest one wins)."""
    branches = [_branch(char, child) for char, child in sorted(node.items()) if char != _END]
    if not branches:
        return ""
    group = f"(?:{'|'.join(branches)})"
    return f"{group}?" if _END in node else group


def _branch(char: str, node: _Trie) -> str:
    # A chain without a fork becomes one run instead of a group a character: literals may be long.
    run = re.escape(char)
    while len(node) == 1 and _END not in node:
        (char, node), *_ = node.items()
        run += re.escape(char)
    return run + _regex(node)
