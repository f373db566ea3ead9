"""Tokens of a text, by a tokenizer that was named."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from freehold.errors import ConfigError, FreeholdError
from freehold.files import store
from freehold.files.model import open_model
from freehold.files.vocabulary import load_text


@dataclass(frozen=True, slots=True)
class NamedTokenizer:
    """A tokenizer.

    Attributes:
        encode: ids of a text, without any that mark its beginning or end.
    """

    encode: Callable[[str], list[int]]

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return len(self.encode(text))


def open_tokenizer(name: str, home: Path) -> NamedTokenizer:
    """The tokenizer of a ``tokenizer.json``, or of a model's files.

    Args:
        name: path, or name in the model store.
        home: folder of the store.

    Raises:
        ConfigError: there is none.
    """
    path = Path(name)
    if path.suffix == ".json" and path.is_file():
        from tokenizers import Tokenizer

        try:
            found = Tokenizer.from_file(name)
        except Exception as error:  # the library raises nothing narrower
            raise ConfigError(f"--tokenizer {name} is no tokenizer: {error}") from None
        return NamedTokenizer(lambda text: list(found.encode(text, add_special_tokens=False).ids))
    try:
        with open_model(store.locate(name, home)) as files:
            text = load_text(files)
    except FreeholdError as error:
        raise ConfigError(f"--tokenizer can't be {name!r}: {error}") from None
    if text.template is not None:
        text.template.close()
    tokenizer = text.tokenizer
    return NamedTokenizer(lambda text: tokenizer.encode(text, add_bos=False))
