"""Log probabilities with the text of their tokens."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from freehold.protocol import Logprobs
from freehold.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class LikelyToken:
    """A token, and how likely it was.

    Attributes:
        token: its text by itself. Bytes that are no whole character are escaped, as in ``\\\\xf0``; a control token is
            written as its literal.
        bytes: what it adds to a text; None if it adds nothing, as control tokens.
        logprob: natural logarithm of its probability by the model's own logits.
    """

    token_id: int
    token: str
    bytes: bytes | None
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprob(LikelyToken):
    """The token that was sampled, or stands in the prompt.

    Attributes:
        rank: 1 if no other token was likelier.
        top: the likeliest tokens, likeliest first, as many as were asked for; this one is among them if its rank says
            so.
    """

    rank: int
    top: tuple[LikelyToken, ...]


def with_text(tokenizer: Tokenizer, token_ids: Iterable[int], scores: Iterable[Logprobs]) -> tuple[TokenLogprob, ...]:
    """Add the tokens' text to what the engine reports."""
    return tuple(
        TokenLogprob(
            token_id,
            *tokenizer.spell(token_id),
            score.logprob,
            score.rank,
            tuple(LikelyToken(other, *tokenizer.spell(other), logprob) for other, logprob in score.top),
        )
        for token_id, score in zip(token_ids, scores, strict=True)
    )


def pieces(tokenizer: Tokenizer, token_ids: Sequence[int], *, skip_control: bool) -> list[str]:
    """The text that each token of a prompt adds; joined they are the prompt. A character that is spread over several
    tokens stands with its last one.

    Arguments:
        skip_control: control tokens add nothing; else they add their literals.
    """
    detokenizer = tokenizer.detokenizer(skip_control=skip_control)
    return [detokenizer.push(token_id) for token_id in token_ids]
