"""Whether and how long a model thinks before it answers."""

from collections.abc import Sequence
from typing import Any

from freehold.errors import RequestError
from freehold.protocol import ThinkingLimit
from freehold.serve.chat.dialect import Dialect
from freehold.serve.schema import ChatRequest
from freehold.text.template import ChatTemplate

EFFORT_TOKENS = {"none": 0, "minimal": 512, "low": 2048, "medium": 8192}
"""Tokens of reasoning by ``reasoning_effort``, where the template doesn't read it itself. More effort has no limit."""

_SWITCHES = ("enable_thinking", "thinking")
"""Variables by which templates turn reasoning off."""


def template_variables(template: ChatTemplate, body: ChatRequest) -> dict[str, Any]:
    """What a template is told: what ``chat_template_kwargs`` says, and the effort where it knows one."""
    variables: dict[str, Any] = {}
    if body.reasoning_effort == "none":
        variables |= {name: False for name in _SWITCHES if _reads(template, body, name)}
    if body.reasoning_effort is not None and _reads(template, body, "reasoning_effort"):
        variables["reasoning_effort"] = body.reasoning_effort
    return {**variables, **(body.chat_template_kwargs or {})}


def thinking_limit(
    dialect: Dialect, template: ChatTemplate | None, body: ChatRequest, prompt_ids: Sequence[int]
) -> ThinkingLimit | None:
    """How long answers to a prompt may think; None: as long as they want.

    Raises:
        RequestError: a limit that can't be kept, or an effort of a model that doesn't reason.
    """
    budget = body.thinking_token_budget
    field = "thinking_token_budget"
    if budget is None and body.reasoning_effort is not None:
        field = "reasoning_effort"
        if dialect.tags is None and body.reasoning_effort == "none":
            return None
        if template is None or not _reads(template, body, field):
            budget = EFFORT_TOKENS.get(body.reasoning_effort)
    if dialect.tags is None and (budget is not None or body.reasoning_effort not in (None, "none")):
        raise RequestError(f"{field} is for models that reason, and this one doesn't; leave it out", param=field)
    if budget is None:
        return None
    end_id = dialect.end_id
    begin_id = None if dialect.is_reasoning(prompt_ids) else dialect.begin_id
    if end_id is None or (begin_id is None and not dialect.is_reasoning(prompt_ids)):
        raise RequestError(
            f"{field} can't be kept: this model's vocabulary has no tokens around reasoning; leave it out",
            param=field,
        )
    if body.allowed_token_ids is not None and end_id not in body.allowed_token_ids:
        raise RequestError(
            f"{field} ends reasoning with token {end_id}, which allowed_token_ids doesn't hold; add it", param=field
        )
    return ThinkingLimit(max_tokens=budget, end_id=end_id, begin_id=begin_id)


def _reads(template: ChatTemplate, body: ChatRequest, variable: str) -> bool:
    return template.reads(variable, with_tools=bool(body.tools))
