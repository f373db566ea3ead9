"""Merge list of a SentencePiece BPE vocabulary.

SentencePiece stores no merges: it joins whichever neighbours form the piece with the best score. `tokenizers` wants
ranked pairs, so each piece gives one pair for each way to cut it into two pieces, best score first.
"""

from collections.abc import Mapping, Sequence


def merges_from_scores(pieces: Mapping[str, int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Pairs in the order they are tried.

    Ties are broken as Hugging Face's converter does: longer left part, then longer right part, then smaller ids.

    Arguments:
        pieces: ordinary pieces and their ids. Control, byte and user-defined tokens take no part: no merge makes them.
        scores: by id; higher joins earlier.
    """
    ranked: list[tuple[float, int, int, int, int]] = []
    spelled: dict[int, str] = {}
    for piece, token_id in pieces.items():
        spelled[token_id] = piece
        score = -scores[token_id]
        size = len(piece)
        for cut in range(1, size):
            left = pieces.get(piece[:cut])
            if left is not None and (right := pieces.get(piece[cut:])) is not None:
                ranked.append((score, -cut, cut - size, left, right))
    ranked.sort()
    return [(spelled[left], spelled[right]) for _, _, _, left, right in ranked]
