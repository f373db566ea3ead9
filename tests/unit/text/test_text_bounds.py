"""How few tokens a text can have: whatever is encoded, it has no fewer."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freehold.files.vocabulary import TextAssets
from freehold.text.tokenizer import Tokenizer

pieces = st.text() | st.sampled_from(["  ", "<think>", "<|im_end|>", "</s>", "\x04", "\x06", "\U00040000", "e\u0301"])
texts = st.builds(lambda parts, times: "".join(parts) * times, st.lists(pieces, max_size=8), st.integers(1, 30))
shared = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@shared
@given(text=texts)
def test_small_vocabularies(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.min_tokens(text) <= len(tokenizer.encode(text, add_bos=False))


@shared
@given(text=texts)
def test_a_vocabulary_that_lacks_bytes(smollm2: TextAssets, text: str) -> None:
    assert smollm2.tokenizer.min_tokens(text) <= len(smollm2.tokenizer.encode(text, add_bos=False))


@pytest.mark.parametrize("unit", ["x", " ", "é", "<|im_end|>", "lorem ipsum "])
def test_long_texts_are_seen_to_be_long(tokenizer: Tokenizer, smollm2: TextAssets, unit: str) -> None:
    for each in (tokenizer, smollm2.tokenizer):
        assert each.min_tokens(unit * 1_000_000) > 8192


def test_bytes_without_a_token_count_for_nothing(smollm2: TextAssets) -> None:
    assert smollm2.tokenizer.encode("\x04" * 1000) == []
    assert smollm2.tokenizer.min_tokens("\x04" * 1000) == 0
