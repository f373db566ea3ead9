"""Prompts of exactly so many tokens, out of words that are one token each.

Synthetic prompts must have the length that was asked for: characters are no measure, and neither are a tokenizer's
random ids, which decode to text that has other ones. Common words are one token in nearly every vocabulary, and
tokenizers split texts at spaces, so that words joined by spaces have as many tokens as words. `learn` makes sure of it
with the tokenizer that counts.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from freehold.errors import ConfigError
from freehold.loadtest.workloads.base import Message, Prompt

Tokenize = Callable[[str], Sequence[int]]
"""From a prompt to the ids that the server makes of it."""

CountChat = Callable[[Sequence[Message]], int | None]
"""The tokens of a chat's prompt; None if the server refuses such chats."""

Form = Literal["chat", "text", "ids"]
"""What prompts are for: messages of chats, texts of completions, or ids, of which a server can make nothing else."""

_CANDIDATES = """
able about above across act add after again age ago air all almost alone along already also always among and animal
answer any appear area arm art ask away back ball bank base be bear beat beauty bed been before began behind best better
between big bird black blood blue board boat body book both bottom box boy bring brother brown build built busy but buy
call came can car care carry case catch cause center chance change check child choose church city class clean clear
clock close cold color come common cook cool copy corn corner cost could count country course cover cross cry current
cut dark day dead deal dear death decide deep did different dinner direct do doctor does dog done door double down draw
dream dress drink drive drop dry during each ear early earth east easy eat edge effect egg eight either else end energy
engine enough enter equal even evening ever every exact example eye face fact fair fall family far farm fast father fear
feed feel feet few field fight figure fill final find fine finger fire first fish five floor flow fly follow food foot
for force forest form forward found four free fresh friend from front full game garden gas gave general get girl give
glass go gold gone good got government great green ground group grow guess had hair half hand happy hard has hat have
head hear heart heat heavy held help her here high hill him his history hit hold hole home hope horse hot hour house how
human hundred hurry ice idea if in inch interest iron island job join jump just keep kept key kind king knew know lady
lake land language large last late laugh law lay lead learn least leave left leg less let letter level lie life lift
light like line list listen little live long look lost lot love low machine made main make man many map mark market
"""

_FEWEST = 32  # words, so that a few of them never come in the same order by chance
_NUM_PROBED = 512
_TEXTS = "Use texts of your own: --dataset-name custom"


@dataclass(frozen=True, slots=True)
class Filler:
    """Makes pieces of prompts.

    Attributes:
        words: each is one token, at the start of a text and after a space; empty if prompts are any ids.
        ids: the same after a space; empty if there is no tokenizer that told them.
        overhead: tokens that a prompt has beside its words: BOS, or what a chat's template writes around a message.
        system_overhead: the same around a system message and a user's; None if the template takes none.
        is_exact: a tokenizer has confirmed all of it. Otherwise a word is about one token.
    """

    words: tuple[str, ...]
    ids: tuple[int, ...] = ()
    form: Form = "text"
    overhead: int = 0
    system_overhead: int | None = 0
    is_exact: bool = True

    def draw(self, num_tokens: int, source: random.Random) -> list[int]:
        """Numbers of words, so many, for `prompt`."""
        return source.choices(range(len(self.words) or len(self.ids)), k=num_tokens)

    def prompt(self, drawn: Sequence[int], *, goes_on: bool = False) -> Prompt:
        """Words or ids by their numbers.

        Args:
            goes_on: a text follows another one, and begins with a space.
        """
        if self.form == "ids":
            return tuple(self.ids[number] for number in drawn)
        return (" " if goes_on else "") + self.text(drawn)

    def text(self, drawn: Sequence[int]) -> str:
        """Words by their numbers, whatever `form` is."""
        return " ".join(self.words[number] for number in drawn)

    def room(self, num_tokens: int) -> int:
        """How many words make a prompt of so many tokens, `overhead` included.

        Raises:
            ConfigError: the overhead alone is that long.
        """
        if num_tokens <= self.overhead:
            raise ConfigError(
                f"a prompt can't have {num_tokens} tokens: what the model puts around it has {self.overhead}; "
                "ask for longer ones, or use --endpoint /v1/completions"
            )
        return num_tokens - self.overhead


GUESSED = Filler(tuple(_CANDIDATES.split()), is_exact=False)
"""For servers whose tokenizer nobody knows."""


def any_ids(vocab_size: int) -> Filler:
    """Prompts of any ids, for servers that take ids but don't tell what they mean."""
    return Filler((), tuple(range(vocab_size)), "ids")


def learn(tokenize: Tokenize, form: Form = "text", count_chat: CountChat | None = None) -> Filler:
    """The words that are one token each.

    Args:
        tokenize: called some hundred times.
        count_chat: None if nobody knows what the template adds: chats are as much longer then.

    Raises:
        ConfigError: there are too few such words.
    """
    words = _CANDIDATES.split()
    one, two = (len(tokenize(text)) for text in (words[0], f"{words[0]} {words[0]}"))
    num_added = 2 * one - two  # of BOS and the like; what follows shows whether that was right
    after_space = _single(tokenize, words, one)
    ids = {word: token_id for word, token_id in after_space.items() if len(tokenize(word)) == num_added + 1}
    if len(ids) < _FEWEST:
        raise ConfigError(
            f"only {len(ids)} of {len(words)} common words are one token of this model; prompts of exact length can't "
            f"be made of them. {_TEXTS}"
        )
    around: tuple[int, int | None] = (num_added, num_added) if form == "text" else (0, 0)
    if form == "chat" and count_chat is not None:
        around = _around_chats(count_chat, next(iter(ids)))
    filler = Filler(tuple(ids), tuple(ids.values()), form, *around, is_exact=form != "chat" or count_chat is not None)
    if len(tokenize(filler.text(filler.draw(_NUM_PROBED, random.Random(0))))) != _NUM_PROBED + num_added:
        raise ConfigError(
            f"this model's tokenizer joins words, so that prompts of exact length can't be made of them. {_TEXTS}"
        )
    return filler


def _single(tokenize: Tokenize, words: Sequence[str], num_first: int) -> dict[str, int]:
    """Those words that are one token after a space, and its id. Asks about many at once: most are.

    Args:
        num_first: ids of a text of the first candidate alone.
    """
    first = _CANDIDATES.split(maxsplit=1)[0]
    ids = tokenize(" ".join([first, *words]))[num_first:]
    if len(ids) == len(words):
        return dict(zip(words, ids, strict=True))
    if len(words) == 1:
        return {}
    middle = len(words) // 2
    return _single(tokenize, words[:middle], num_first) | _single(tokenize, words[middle:], num_first)


def _around_chats(count: CountChat, word: str) -> tuple[int, int | None]:
    """`Filler.overhead` and `Filler.system_overhead`.

    Raises:
        ConfigError: the model takes no chats.
    """
    user = {"role": "user", "content": word}
    alone = count([user])
    if alone is None:
        raise ConfigError("the model has no chat template that takes a user's message; use --endpoint /v1/completions")
    both = count([{"role": "system", "content": word}, user])
    return alone - 1, None if both is None else both - 2
