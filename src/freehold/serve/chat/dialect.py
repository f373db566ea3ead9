"""How a model writes what isn't content: which tags are around its reasoning, and how it calls tools."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from freehold.config import ReasoningParserName, ServeConfig, ToolCallParserName
from freehold.files.vocabulary import TextAssets
from freehold.grammar.constraint import Lark
from freehold.protocol import Trigger
from freehold.serve.chat.markup import Tags
from freehold.serve.chat.reasoning import MISTRAL_THINK, THINK, TaggedReasoning
from freehold.serve.toolcalls.formats import (
    ARG_KEY,
    ARGS,
    FORMATS,
    FUNCTION,
    MISTRAL_LIST,
    PYTHON_TAG,
    TOOL_CALL,
    TOOL_CALLS,
    Format,
)
from freehold.serve.toolcalls.reader import CallReader
from freehold.serve.toolcalls.writing import Callable, Wish, grammar_of
from freehold.text.answer import Reading
from freehold.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one model writes.

    Attributes:
        tags: around its reasoning; None: it doesn't reason.
        always_reasons: its answers begin with reasoning unless the prompt has closed it.
        calls: how it calls tools.
        shows_calls: its template writes the calls of earlier turns.
    """

    tokenizer: Tokenizer
    tags: Tags | None
    always_reasons: bool
    calls: Format
    shows_calls: bool

    @property
    def begin_id(self) -> int | None:
        """The token that opens reasoning; None if no token does by itself."""
        return None if self.tags is None else token_id(self.tokenizer, self.tags.begin)

    @property
    def end_id(self) -> int | None:
        """The token that ends reasoning; None if no token does by itself."""
        return None if self.tags is None else token_id(self.tokenizer, self.tags.end)

    def is_reasoning(self, prompt_ids: Sequence[int]) -> bool:
        """Whether an answer to this prompt begins with reasoning, without a tag of its own."""
        if self.tags is None:
            return False
        tail = self._last_turn(prompt_ids, self.tags)
        begun, ended = tail.rfind(self.tags.begin), tail.rfind(self.tags.end)
        return begun > ended or (self.always_reasons and ended < 0)

    def reading(self, prompt_ids: Sequence[int], tools: Sequence[Callable] = (), *, one_call: bool = False) -> Reading:
        """How to read answers to a prompt.

        Args:
            tools: that may be called.
            one_call: an answer ends with its first call.
        """
        make_reasoning = make_calls = None
        literals: list[str] = []
        if self.tags is not None:
            make_reasoning = partial(TaggedReasoning, self.tags, starts_open=self.is_reasoning(prompt_ids))
            literals += [self.tags.begin, self.tags.end]
        if tools:
            schemas = {function.name: function.schema for function in tools}
            make_calls = partial(CallReader, self.calls.parser, schemas, self.calls.new_id)
            literals += self.calls.literals
        return Reading(make_reasoning, make_calls, one_call, self._controls(literals))

    def _controls(self, literals: Iterable[str]) -> dict[int, str]:
        controls = self.tokenizer.vocabulary.controls
        return {controls[literal].token_id: literal for literal in literals if literal in controls}

    def grammar(self, wish: Wish) -> Lark:
        """The grammar of what an answer must be, as this model writes it."""
        controls = {literal: token.token_id for literal, token in self.tokenizer.vocabulary.controls.items()}
        return grammar_of(wish, self.calls.several if wish.several else self.calls.one, controls)

    def trigger(self, *, is_open: bool) -> Trigger:
        """Where calls begin in an answer that needn't have any.

        Args:
            is_open: the prompt has opened reasoning.
        """
        tags = None if self.tags is None else (self.tags.begin.encode(), self.tags.end.encode())
        openers = tuple(opener.encode() for opener in self.calls.openers)
        return Trigger(openers=openers, thoughts=tags, is_open=is_open)

    def _last_turn(self, prompt_ids: Sequence[int], tags: Tags) -> str:
        """What follows the last control token: users can't write any, so what they say isn't in there."""
        known = {token_id(self.tokenizer, tags.begin), token_id(self.tokenizer, tags.end)}
        begin = len(prompt_ids)
        while begin and (prompt_ids[begin - 1] in known or not self.tokenizer.is_control(prompt_ids[begin - 1])):
            begin -= 1
        return self.tokenizer.decode(prompt_ids[begin:], skip_control=False)


def dialect_of(text: TextAssets, config: ServeConfig) -> Dialect:
    """What the settings say, and where they say ``auto``, what template and vocabulary show."""
    sources = () if text.template is None else tuple(text.template.sources.values())
    name = config.reasoning_parser if config.reasoning_parser != "auto" else _reasoning_name(text.tokenizer, sources)
    calls = config.tool_call_parser
    return Dialect(
        tokenizer=text.tokenizer,
        tags={"none": None, "mistral": MISTRAL_THINK}.get(name, THINK),
        always_reasons=name == "deepseek_r1",
        calls=_format(calls, text.tokenizer, sources),
        shows_calls=any("tool_calls" in source for source in sources),
    )


def token_id(tokenizer: Tokenizer, literal: str) -> int | None:
    """The token that a literal is; None if it is none."""
    vocabulary = tokenizer.vocabulary
    token = vocabulary.controls.get(literal) or vocabulary.added.get(literal)
    return None if token is None else token.token_id


def _reasoning_name(tokenizer: Tokenizer, sources: Iterable[str]) -> ReasoningParserName:
    def has(tags: Tags) -> bool:
        return token_id(tokenizer, tags.end) is not None or any(tags.end in source for source in sources)

    return "qwen3" if has(THINK) else "mistral" if has(MISTRAL_THINK) else "none"


def _format(name: ToolCallParserName, tokenizer: Tokenizer, sources: Iterable[str]) -> Format:
    if name == "auto":
        name = _calls_name(tokenizer, sources)
    is_old = token_id(tokenizer, ARGS) is None and not any(ARGS in source for source in sources)
    return MISTRAL_LIST if name == "mistral" and is_old else FORMATS[name]


def _calls_name(tokenizer: Tokenizer, sources: Iterable[str]) -> ToolCallParserName:
    """The way to write calls that the template shows; JSON, which we ask for ourselves, where it shows none."""
    for source in sources:
        if TOOL_CALL in source:
            return "qwen3_coder" if FUNCTION in source else "glm45" if ARG_KEY in source else "hermes"
        if TOOL_CALLS in source:
            return "mistral"
        if PYTHON_TAG in tokenizer.vocabulary.controls and '"parameters": ' in source:
            return "llama3_json"
    return "json"
