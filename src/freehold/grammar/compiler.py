"""The server's side: constraints are checked, compiled and kept."""

from collections.abc import Callable

import llguidance

from freehold.errors import RequestError
from freehold.grammar.constraint import Constraint
from freehold.grammar.source import lark_of
from freehold.protocol import Grammar, TokenTexts


class GrammarCompiler:
    """Turns constraints into grammars. Thread-safe."""

    def __init__(self, token_texts: Callable[[], TokenTexts], teach: Callable[[TokenTexts], None]) -> None:
        """
        Args:
            token_texts: what the vocabulary's tokens write; asked for once, when it is first needed.
            teach: tells the engine what the tokens write; called before the first grammar is returned.
        """
        self._token_texts = token_texts
        self._teach = teach

    def compile(
        self, constraint: Constraint, *, param: str, after_id: int | None = None, max_free: int | None = None
    ) -> Grammar:
        """The grammar of a constraint. Blocks while it is checked and compiled; an event loop calls it in a thread.

        Args:
            param: the request's field that the constraint came from, for errors.
            after_id, max_free: as in `Grammar`.

        Raises:
            RequestError: the constraint is malformed, asks for what can't be enforced, or takes too much.
        """
        text = lark_of(constraint)
        if error := llguidance.LLMatcher.validate_grammar(text):
            raise RequestError(f"{param} can't be used: {error}", param=param, code="invalid_grammar")
        self._teach(self._token_texts())
        return Grammar(source=text.encode(), after_id=after_id, max_free=max_free)
