"""Log probabilities in the forms that clients know: OpenAI's of both surfaces, and vLLM's of prompts."""

from collections.abc import Iterable, Sequence

from freehold.serve.schema import ChatLogprobs, ChatTokenLogprob, PromptLogprob, TextLogprobs, TopLogprob
from freehold.text.logprobs import LikelyToken, TokenLogprob

LEAST = -9999.0
"""Written for anything less: JSON has no infinity."""


def chat_logprobs(scores: Iterable[TokenLogprob]) -> ChatLogprobs:
    """As ``choices[].logprobs`` of a chat."""
    return ChatLogprobs(
        [
            ChatTokenLogprob(score.token, _finite(score), _bytes(score), [_top(other) for other in score.top])
            for score in scores
        ]
    )


def text_logprobs(
    scores: Sequence[TokenLogprob | None], pieces: Sequence[str], *, num_top: int, offset: int
) -> TextLogprobs:
    """As ``choices[].logprobs`` of the completions surface.

    Args:
        scores: None for a token that nothing precedes.
        pieces: the text that each token adds.
        num_top: how many of the likeliest to list.
        offset: characters (code points) of the choice's text before the first piece.
    """
    offsets = []
    for piece in pieces:
        offsets.append(offset)
        offset += len(piece)
    return TextLogprobs(
        tokens=list(pieces),
        token_logprobs=[None if score is None else _finite(score) for score in scores],
        top_logprobs=[
            None if score is None else _by_text(score, piece, num_top)
            for score, piece in zip(scores, pieces, strict=True)
        ],
        text_offset=offsets,
    )


def prompt_logprobs(scores: Iterable[TokenLogprob], num_top: int) -> list[dict[str, PromptLogprob] | None]:
    """As vLLM's ``prompt_logprobs``: for each id of the prompt but the first, the likeliest ones and itself, by id."""
    whole: list[dict[str, PromptLogprob] | None] = [None]
    for score in scores:
        ranked = enumerate(score.top[:num_top], start=1)
        by_id = {str(other.token_id): PromptLogprob(_finite(other), rank, other.token) for rank, other in ranked}
        by_id.setdefault(str(score.token_id), PromptLogprob(_finite(score), score.rank, score.token))
        whole.append(by_id)
    return whole


def _by_text(score: TokenLogprob, piece: str, num_top: int) -> dict[str, float]:
    """The likeliest tokens and the chosen one, by text. Of two with the same text, the second goes by its id."""
    by_text = {piece: _finite(score)}
    for other in score.top[:num_top]:
        if other.token_id == score.token_id:
            continue
        is_text = other.bytes is None or other.bytes == other.token.encode()
        name = other.token if is_text else f"bytes:{other.token}"
        by_text[f"token_id:{other.token_id}" if name in by_text else name] = _finite(other)
    return by_text


def _top(token: LikelyToken) -> TopLogprob:
    return TopLogprob(token.token, _finite(token), _bytes(token))


def _bytes(token: LikelyToken) -> list[int] | None:
    return None if token.bytes is None else list(token.bytes)


def _finite(token: LikelyToken) -> float:
    return max(token.logprob, LEAST)
