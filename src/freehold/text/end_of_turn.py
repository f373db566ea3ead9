"""Which ids end an answer.

The rule, in full:

1. the tokenizer's EOS (``tokenizer.ggml.eos_token_id``; ``eos_token`` of ``tokenizer_config.json``);
2. ids the file names as ends: ``tokenizer.ggml.eot_token_id`` and ``eom_token_id``; ``eos_token_id`` of
   ``generation_config.json`` (one or a list), or of ``config.json`` where there is no ``generation_config.json``;
3. a token of `END_OF_TURN`, if the vocabulary marks it as a control token *and* the chat template writes it. Files
   converted from a base model name only the end of text as EOS, though their template closes turns with another token.

Names are compared whole; no part of a name means anything.
"""

from collections.abc import Iterable, Mapping

from freehold.text.vocabulary import LiteralToken

END_OF_TURN = frozenset(
    {
        "<|im_end|>",  # ChatML: Qwen, SmolLM2, Hermes
        "<|eot_id|>",  # Llama 3
        "<|eom_id|>",  # Llama 3.1: end of a message that calls a tool
        "<|eot|>",  # Llama 4
        "<end_of_turn>",  # Gemma
        "<|end|>",  # Phi
        "<|end_of_text|>",  # Granite
        "<|END_OF_TURN_TOKEN|>",  # Command R
        "<|end_of_turn|>",  # OpenChat
        "<|endofturn|>",  # EXAONE
    }
)


def end_ids(
    declared: Iterable[int | None], controls: Mapping[str, LiteralToken], templates: Iterable[str]
) -> frozenset[int]:
    """Ids that end an answer, by the rule above.

    Arguments:
        declared: ids from points 1 and 2.
        templates: sources of the model's chat templates.
    """
    ids = {token_id for token_id in declared if token_id is not None}
    sources = tuple(templates)
    for literal in END_OF_TURN & controls.keys():
        if any(literal in source for source in sources):
            ids.add(controls[literal].token_id)
    return frozenset(ids)
