"""Chat templates: messages in, prompt out.

Rendering equals Hugging Face's `apply_chat_template`. It runs in a process of its own (`template_worker`), because a
template comes with a model, from a stranger (docs/decisions/templates.md).
"""

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from freehold.errors import RequestError
from freehold.text.literals import LiteralFinder
from freehold.text.markers import ROLES, LiteralBreaker, choose_markers, map_strings
from freehold.text.messages import append_to_content, check_continuable, normalize
from freehold.text.rendered import Rendered
from freehold.text.template_process import TemplateError, TemplateLimits, TemplateProcess
from freehold.text.tokenizer import check_text

__all__ = ["ChatTemplate", "Rendered", "TemplateError", "TemplateLimits"]

DEFAULT = "default"
TOOL_USE = "tool_use"

_RESERVED = frozenset(
    {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}
    | {"raise_exception", "strftime_now", "namespace", "dict", "range", "cycler", "joiner", "lipsum"}
    | {"loop", "self", "caller"}
)


class ChatTemplate:
    """A model's chat templates. Thread-safe.

    `render` blocks while the worker renders: a fraction of a millisecond for ordinary chats, at worst the limits'
    `wall_s`. An event loop calls it in a thread.
    """

    def __init__(
        self,
        sources: Mapping[str, str] | str,
        *,
        special_tokens: Mapping[str, str] | None = None,
        controls: Iterable[str] = (),
        added: Iterable[str] = (),
        clock: Callable[[], datetime.datetime] = datetime.datetime.now,
        limits: TemplateLimits | None = None,
    ) -> None:
        """
        Arguments:
            sources: Jinja sources by name; ``default`` is needed, ``tool_use`` is taken when there are tools.
            special_tokens: variables such as ``bos_token``.
            controls: literals of the vocabulary's control tokens.
            added: literals of its other added tokens.
            clock: the time that `strftime_now` tells.
        """
        self.sources = {DEFAULT: sources} if isinstance(sources, str) else dict(sources)
        if DEFAULT not in self.sources:
            raise ValueError(f"no default template among {sorted(self.sources)}")
        self._special_tokens = dict(special_tokens or {})
        self._controls = frozenset(controls)
        self._added = frozenset(added)
        self._clock = clock
        self._process = TemplateProcess(self.sources, limits or TemplateLimits())
        self._literals: dict[str, _Literals] = {}

    def start(self) -> None:
        """Start the worker without waiting for it, so that the first rendering is fast.

        Raises:
            ResourceError: no process can be started.
        """
        self._process.start()

    def close(self) -> None:
        """End the worker."""
        self._process.close()

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> Rendered:
        """Render a chat.

        Arguments:
            messages: role, content and whatever else the template reads. Null and absent content are empty content.
            add_generation_prompt: end with the header of the assistant's turn.
            continue_final_message: end within the last message, which must be the assistant's. None: do so if it is.
            tools: JSON-like descriptions of functions.
            variables: further ones for the template, such as ``enable_thinking``: what clients send as
                ``chat_template_kwargs``.

        Raises:
            RequestError: messages or variables are unusable.
            TemplateError: the template refuses the messages or fails.
        """
        name = self._name(tools is not None)
        facts = self._process.facts(name)
        chat = normalize(messages, keep_parts=facts["iterates_content"])
        if continue_final_message is None:
            continue_final_message = add_generation_prompt and chat[-1]["role"] == "assistant"
        if continue_final_message:
            check_continuable(chat)
        self._check_names(variables or {})
        extra = {"tools": None if tools is None else list(tools), "documents": None, **(variables or {})}
        literals = self._literals_of(name, facts["literals"])
        chat, extra, marker, tail = self._mark(literals, chat, extra, continue_final_message)
        now = self._clock()
        text = self._process.render(
            name,
            {
                **self._special_tokens,
                **extra,
                "messages": chat,
                "add_generation_prompt": add_generation_prompt and not continue_final_message,
            },
            (now.year, now.month, now.day, now.hour, now.minute, now.second, now.microsecond),
        )
        if continue_final_message:
            text = _cut_at(text, tail)
        return Rendered(text, marker, literals.all, literals.written)

    def reads(self, variable: str, *, with_tools: bool) -> bool:
        """Whether the template that is taken with or without tools reads a variable. Blocks as `render` does.

        Raises:
            TemplateError: the template can't be compiled.
        """
        return variable in self._process.facts(self._name(with_tools))["variables"]

    def _name(self, with_tools: bool) -> str:
        return TOOL_USE if with_tools and TOOL_USE in self.sources else DEFAULT

    def _mark(
        self,
        literals: "_Literals",
        chat: list[dict[str, Any]],
        extra: dict[str, Any],
        continues: bool,
    ) -> tuple[list[dict[str, Any]], dict[str, Any], str, str]:
        """Break users' literals, and mark the end of the message to continue.

        Returns:
            messages, other variables, the marker in broken literals, the marker of the end; "" for a marker not needed.
        """
        found = False

        def look(breaker: LiteralBreaker) -> Callable[[str], str]:
            def look_at(text: str) -> str:
                nonlocal found
                check_text(text, "messages")
                found = found or breaker.needs_breaking(text)
                return text

            return look_at

        literals.map_chat(chat, look)
        map_strings(extra, look(literals.strict))
        if not (found or continues):
            return chat, extra, "", ""
        payload = msgspec.json.encode([chat, extra]).decode() + "".join(
            [*self.sources.values(), *literals.all.literals]
        )
        marker, tail = choose_markers(payload, 2)

        def mark(breaker: LiteralBreaker) -> Callable[[str], str]:
            return lambda text: breaker.break_text(text, marker)

        if found:
            chat = literals.map_chat(chat, mark)
            extra = map_strings(extra, mark(literals.strict))
        if continues:
            append_to_content(chat[-1], tail + " ")
        return chat, extra, marker if found else "", tail

    def _check_names(self, variables: Mapping[str, Any]) -> None:
        for name in variables:
            if name in _RESERVED or name in self._special_tokens or name.startswith("_"):
                raise RequestError(
                    f"chat_template_kwargs has {name!r}, a name that templates rely on; use another",
                    param="chat_template_kwargs",
                    code="invalid_value",
                )

    def _literals_of(self, name: str, template_text: str) -> "_Literals":
        if name not in self._literals:
            written = {literal for literal in self._added if not literal.isspace() and literal in template_text}
            self._literals[name] = _Literals(self._controls, written)
        return self._literals[name]


class _Literals:
    """What is a token where the template writes it, and text where a user does.

    In an assistant's turn, added tokens that the template writes itself (``</think>``) stay as they are: the template
    looks for them there, to part reasoning from the answer, as it was trained with.
    """

    def __init__(self, controls: Iterable[str], written: Iterable[str]) -> None:
        controls = frozenset(controls)
        written = frozenset(written)
        self.all = LiteralFinder(controls | written)
        self.written = LiteralFinder(written)
        self.strict = LiteralBreaker(controls | written)
        self._controls_only = LiteralBreaker(controls) if written else self.strict

    def map_chat(
        self, chat: list[dict[str, Any]], change: Callable[[LiteralBreaker], Callable[[str], str]]
    ) -> list[dict[str, Any]]:
        """Copies of the messages with each string changed, known roles left alone."""
        changed = []
        for message in chat:
            breaker = self._controls_only if message["role"] == "assistant" else self.strict
            copy = map_strings(message, change(breaker))
            if message["role"] in ROLES:
                copy["role"] = message["role"]
            changed.append(copy)
        return changed


def _cut_at(text: str, tail: str) -> str:
    """The text up to where the final message ended. If the template trimmed the message, so is its end."""
    place = text.rfind(tail)
    if place < 0:
        raise RequestError(
            "the model's chat template doesn't write the last message, so it can't be continued",
            param="messages",
            code="invalid_value",
        )
    return text[:place] if text.startswith(" ", place + len(tail)) else text[:place].rstrip()
