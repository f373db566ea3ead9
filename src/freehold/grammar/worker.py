"""The process that checks and compiles constraints. Run by `freehold.grammar.compiler`.

Frames are msgpack. The first one carries the vocabulary and the limits; each later one is a constraint, and answered
with a `Verdict`.
"""

import msgspec

from freehold.errors import GrammarError
from freehold.grammar.constraint import Constraint, JsonObject, Lark, SchemaRule, weakened
from freehold.grammar.factory import MatcherFactory
from freehold.grammar.messages import Setup, Verdict
from freehold.grammar.reasons import reason_of
from freehold.grammar.source import ConstraintError, source_of
from freehold.workers.confined import confine, read_frame, reply

_constraints = msgspec.msgpack.Decoder(Constraint)
_encoder = msgspec.msgpack.Encoder()


def main() -> None:
    """Answer the setup with nothing, and then one constraint after the other."""
    setup = msgspec.msgpack.decode(read_frame(), type=Setup)
    factory = MatcherFactory(setup.tokens)
    judge(factory, _encoder.encode(JsonObject()))  # loads what is loaded late
    confine(setup.limits.memory_bytes)
    reply(bytes, setup.limits.cpu_s)
    while True:
        request = read_frame()
        reply(lambda request=request: _encoder.encode(judge(factory, request)), setup.limits.cpu_s)  # type: ignore[misc]


def judge(factory: MatcherFactory, request: bytes) -> Verdict:
    """Check and compile one constraint, and try it out. Errors of every kind are verdicts."""
    try:
        encoded = _compiled(factory, _constraints.decode(request))
    except ConstraintError as error:
        return Verdict(message=str(error), param=error.param, place=error.place, code=error.code)
    except GrammarError as error:
        return Verdict(message=reason_of(str(error)), code="invalid_grammar")
    except (MemoryError, RecursionError):
        return Verdict(message="is nested too deep, or takes too much memory", code="grammar_budget")
    except Exception as error:
        return Verdict(message=f"can't be compiled: {type(error).__name__}: {error}", code="invalid_grammar")
    return Verdict(source=encoded)


def _compiled(factory: MatcherFactory, constraint: Constraint) -> bytes:
    try:
        return _tried_out(factory, constraint)
    except GrammarError:
        if not isinstance(constraint, Lark) or not any(rule.is_lenient for rule in constraint.rules):
            raise
    return _tried_out(factory, weakened(constraint, lambda rule: _is_enforceable(factory, rule)))


def _tried_out(factory: MatcherFactory, constraint: Constraint) -> bytes:
    encoded = _encoder.encode(source_of(constraint))
    factory.compile(encoded).try_out()
    return encoded


def _is_enforceable(factory: MatcherFactory, rule: SchemaRule) -> bool:
    try:
        _tried_out(factory, Lark(f"start: {rule.name}", [rule], is_trusted=True))
    except GrammarError:
        return False
    return True
