"""Models of the families that think and call tools: SmolLM2's vocabulary, some of its tokens renamed, and templates."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from freehold.files.vocabulary import TextAssets
from freehold.text.template import ChatTemplate
from freehold.text.tokenizer import Tokenizer
from freehold.text.vocabulary import LiteralToken

_TURNS = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] -%}CALL{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
OPENING{%- endif -%}"""
_TOOLS = "{%- if tools -%}<|im_start|>system\nTools: {{ tools | tojson }}<|im_end|>\n{% endif -%}\n"
_ARGUMENTS = "{{ call.function.arguments | tojson }}"

QWEN = _TOOLS + _TURNS.replace(
    "CALL", '<tool_call>\n{"name": "{{ call.function.name }}", "arguments": ' + _ARGUMENTS + "}\n</tool_call>"
).replace("OPENING", "{%- if enable_thinking is false -%}<think>\n\n</think>\n\n{% endif -%}")
DEEPSEEK = _TURNS.replace("CALL", "").replace("OPENING", "<think>\n{% set history = '</think>' -%}")
LLAMA = _TOOLS + _TURNS.replace(
    "CALL", '{"name": "{{ call.function.name }}", ' + '"parameters": ' + _ARGUMENTS + "}"
).replace("OPENING", "")
MISTRAL = _TOOLS + _TURNS.replace("CALL", "[TOOL_CALLS]{{ call.function.name }}[ARGS]" + _ARGUMENTS).replace(
    "OPENING", ""
)
MISTRAL_OLD = _TOOLS + _TURNS.replace(
    "CALL", '[TOOL_CALLS][{"name": "{{ call.function.name }}", "arguments": ' + _ARGUMENTS + "}]"
).replace("OPENING", "")
_VALUE = "{{ value if value is string else value | tojson }}"
_LINE = "{{ '\n' }}"
_MEMBERS = "{%- for key, value in call.function.arguments | items -%}MEMBER{%- endfor -%}"
QWEN_CODER = _TOOLS + _TURNS.replace(
    "CALL",
    f"<tool_call>{_LINE}<function={{{{ call.function.name }}}}>{_LINE}{_MEMBERS}</function>{_LINE}</tool_call>",
).replace("MEMBER", f"<parameter={{{{ key }}}}>{_LINE}{_VALUE}{_LINE}</parameter>{_LINE}").replace("OPENING", "")
GLM = _TOOLS + _TURNS.replace("CALL", f"<tool_call>{{{{ call.function.name }}}}{_LINE}{_MEMBERS}</tool_call>").replace(
    "MEMBER", f"<arg_key>{{{{ key }}}}</arg_key>{_LINE}<arg_value>{_VALUE}</arg_value>{_LINE}"
).replace("OPENING", "")

TEMPLATES = {
    "hermes": QWEN,
    "qwen3_coder": QWEN_CODER,
    "glm45": GLM,
    "llama3_json": LLAMA,
    "mistral": MISTRAL,
    "mistral_old": MISTRAL_OLD,
}
"""Templates whose models call tools, by the parser that reads them."""


def family(
    text: TextAssets, template: str | None, *, controls: tuple[str, ...] = (), added: tuple[str, ...] = ()
) -> TextAssets:
    """A model with this template, or SmolLM2's, in whose vocabulary these literals are tokens of their own."""
    tokenizer = Tokenizer(_renamed(text.tokenizer, controls, added))
    assert text.template is not None
    source: Mapping[str, str] | str = text.template.sources if template is None else template
    made = ChatTemplate(
        source,
        special_tokens=tokenizer.special_tokens,
        controls=tokenizer.vocabulary.controls,
        added=tokenizer.vocabulary.added,
    )
    return TextAssets(tokenizer, made)


def _renamed(tokenizer: Tokenizer, controls: tuple[str, ...], added: tuple[str, ...]) -> Any:
    """A vocabulary of which control tokens that nobody needs have other literals."""
    old = tokenizer.vocabulary
    unused = [token for literal, token in old.controls.items() if not literal.startswith("<|")]
    new = dict(zip([*controls, *added], unused, strict=False))
    assert len(new) == len(controls) + len(added)
    by_id = {token.token_id: literal for literal, token in new.items()}
    kept = {literal: token for literal, token in old.controls.items() if token.token_id not in by_id}
    return replace(
        old,
        controls={**kept, **{literal: LiteralToken(new[literal].token_id) for literal in controls}},
        added={**old.added, **{literal: LiteralToken(new[literal].token_id) for literal in added}},
        silent_ids=old.silent_ids - {new[literal].token_id for literal in added},
        spelled=lambda token_id: by_id.get(token_id) or old.spelled(token_id),
    )
