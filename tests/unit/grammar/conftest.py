"""Grammars over single bytes."""

import msgspec
import pytest
from byte_grammars import TEXTS, Accepts, AcceptsJson, Fresh, follows

from freehold.grammar.constraint import Constraint, JsonSchema
from freehold.grammar.factory import FreshMatcher, MatcherFactory
from freehold.grammar.source import source_of
from freehold.protocol import Grammar, Sampling


@pytest.fixture(scope="session")
def factory() -> MatcherFactory:
    return MatcherFactory(TEXTS)


@pytest.fixture(scope="session")
def fresh(factory: MatcherFactory) -> Fresh:
    """Compiles a constraint, once."""
    kept: dict[str, FreshMatcher] = {}

    def fresh(constraint: Constraint) -> FreshMatcher:
        key = repr(constraint)
        if key not in kept:
            kept[key] = factory.compile(msgspec.msgpack.encode(source_of(constraint)))
        return kept[key]

    return fresh


@pytest.fixture(scope="session")
def accepts(fresh: Fresh) -> Accepts:
    """Whether a constraint allows a text, and that it ends there."""
    return lambda constraint, text: follows(fresh(constraint).begin(Grammar(source=b""), Sampling()), text)


@pytest.fixture(scope="session")
def accepts_json(accepts: Accepts) -> AcceptsJson:
    return lambda schema, text: accepts(JsonSchema(schema), text)
