"""What a chat's answer must be, of all that its request says: calls of tools, a form, and reasoning before either."""

from collections.abc import Sequence
from dataclasses import replace

from freehold.errors import RequestError
from freehold.grammar.constraint import Constraint, JsonObject, JsonSchema, SchemaRule
from freehold.serve.chat.dialect import Dialect
from freehold.serve.structured import Wanted
from freehold.serve.toolcalls.choice import ToolUse
from freehold.serve.toolcalls.writing import Wish


def answer_wish(dialect: Dialect, form: Wanted | None, use: ToolUse | None, prompt_ids: Sequence[int]) -> Wanted | None:
    """What the answer must be, and where in it; None: anything.

    Calls that are forced leave no place for another form; where the model may decide, its answer is a call or has the
    form, or is any text in which calls are right. Other forms than JSON can't stand beside calls or reasoning in one
    grammar: they allow no calls, and reasoning only where the prompt has opened it.

    Args:
        form: what the request says of content.

    Raises:
        RequestError: reasoning is open, and nothing tells where it ends.
    """
    is_open = dialect.is_reasoning(prompt_ids)
    answer = None if form is None else _schema_rule(form)
    if use is not None and (use.is_forced or answer is not None or form is None):
        wish = Wish(
            use.callable,
            not use.one_call,
            answer=None if use.is_forced else answer,
            thoughts=dialect.tags,
            is_open=is_open,
            is_free=not use.is_forced and answer is None,
        )
        trigger = dialect.trigger(is_open=is_open) if wish.is_free else None
        return Wanted(dialect.grammar(wish), "tools", trigger=trigger)
    if form is None or dialect.tags is None:
        return form
    if answer is not None:
        return Wanted(dialect.grammar(Wish(answer=answer, thoughts=dialect.tags, is_open=is_open)), form.param)
    if is_open and dialect.end_id is None:
        raise RequestError(
            f"{form.param} can't be kept after reasoning: no token of this model ends that; send a JSON schema, or "
            "turn reasoning off",
            param=form.param,
        )
    return replace(form, after_id=dialect.end_id if is_open else None)


def _schema_rule(form: Wanted) -> SchemaRule | None:
    """The rule of a form that is JSON."""
    constraint: Constraint = form.constraint
    if isinstance(constraint, JsonSchema):
        return SchemaRule("answer", constraint.schema, form.param)
    if isinstance(constraint, JsonObject):
        return SchemaRule("answer", {"type": "object"}, form.param)
    return None
