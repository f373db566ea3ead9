"""Telling reasoning from content, for models that think between tags such as ``<think>`` and ``</think>``."""

from typing import Literal

from freehold.serve.chat.markup import SPACE, Tags, beginning_at_end
from freehold.text.parts import Content, Part, Reasoning

_State = Literal["start", "opened", "open", "closed", "content"]


THINK = Tags("<think>", "</think>")
MISTRAL_THINK = Tags("[THINK]", "[/THINK]")


class TaggedReasoning:
    """A `ReasoningReader` of one answer.

    Reasoning is at an answer's beginning or nowhere: it begins with the opening tag, unless the prompt has opened it
    already, and reaches to the closing tag, or to the end of an answer that has none. White space beside the tags
    belongs to them. Tags that come later are content like any other text.
    """

    def __init__(self, tags: Tags, *, starts_open: bool) -> None:
        """
        Args:
            starts_open: what comes first is reasoning, whether or not the opening tag comes.
        """
        self._tags = tags
        self._starts_open = starts_open
        self._state: _State = "start"
        self._held = ""

    @property
    def is_open(self) -> bool:
        """Whether what comes next is reasoning, as far as is known."""
        return self._state in ("opened", "open") or (self._state == "start" and self._starts_open)

    @property
    def is_undecided(self) -> bool:
        """Whether what was held back may turn out to be the opening tag."""
        return self._state == "start"

    def push(self, text: str) -> list[Part]:
        """What is certain now."""
        self._held += text
        parts: list[Part] = []
        if self._state == "start":
            self._look_for_begin()
        self._pass_space("opened", "open")
        if self._state == "open":
            parts += self._look_for_end()
        self._pass_space("closed", "content")
        if self._state == "content":
            parts += self._give(Content)
        return parts

    def finish(self) -> list[Part]:
        """What was held back."""
        return self._give(Reasoning if self.is_open else Content)

    def _look_for_begin(self) -> None:
        begin = self._tags.begin
        text = self._held.lstrip(SPACE)
        if text.startswith(begin):
            self._state, self._held = "opened", text[len(begin) :]
        elif not begin.startswith(text):
            self._state = "opened" if self._starts_open else "content"

    def _pass_space(self, behind_tag: _State, then: _State) -> None:
        """Drop white space behind a tag."""
        if self._state == behind_tag:
            self._held = self._held.lstrip(SPACE)
            if self._held:
                self._state = then

    def _look_for_end(self) -> list[Part]:
        before, tag, after = self._held.partition(self._tags.end)
        if tag:
            self._state, self._held = "closed", after
            before = before.rstrip(SPACE)
        else:
            # White space may belong to the tag that follows, and what looks like the tag's beginning may be it.
            num_held = beginning_at_end(before, self._tags.end)
            before = before[: len(before) - num_held].rstrip(SPACE)
            self._held = self._held[len(before) :]
        return [Reasoning(before)] if before else []

    def _give(self, kind: type[Content] | type[Reasoning]) -> list[Part]:
        held, self._held = self._held, ""
        return [kind(held)] if held else []
