"""Synthetic prompts have exactly the tokens that were asked for."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from word_tokenizer import Words

from freehold.errors import ConfigError
from freehold.files.model import open_model
from freehold.files.vocabulary import load_text
from freehold.loadtest.workloads.filler import GUESSED, learn


@pytest.mark.parametrize("num_bos", [0, 1])
@settings(max_examples=40, deadline=None)
@given(num=st.integers(1, 300), seed=st.integers(0, 2**64))
def test_a_text_has_as_many_tokens_as_words_whatever_they_are(num_bos, num, seed):
    tokenizer = Words(num_bos, long=["able", "cat", "market"], long_at_start=["again", "dog"])
    filler = learn(tokenizer.tokenize)
    assert filler.overhead == num_bos
    text = filler.prompt(filler.draw(filler.room(num + num_bos), random.Random(seed)))
    assert len(tokenizer.tokenize(text)) == num + num_bos


def test_words_that_are_several_tokens_are_not_used():
    tokenizer = Words(long=["able", "cat"], long_at_start=["dog"])
    filler = learn(tokenizer.tokenize)
    assert not {"able", "cat", "dog"} & set(filler.words)
    assert {"about", "lake"} <= set(filler.words)


def test_ids_are_those_of_the_words():
    tokenizer = Words(num_bos=1)
    filler = learn(tokenizer.tokenize, "ids")
    drawn = filler.draw(40, random.Random(1))
    ids = filler.prompt(drawn)
    assert filler.overhead == 0
    assert list(ids) == tokenizer.tokenize("x " + filler.text(drawn))[2:]


def test_a_piece_that_goes_on_adds_up():
    tokenizer = Words()
    filler = learn(tokenizer.tokenize)
    source = random.Random(3)
    whole = filler.prompt(filler.draw(7, source)) + filler.prompt(filler.draw(5, source), goes_on=True)
    assert len(tokenizer.tokenize(whole)) == 12


def test_what_a_chat_template_adds_is_counted():
    tokenizer = Words(num_bos=1)
    filler = learn(tokenizer.tokenize, "chat", tokenizer.count_chat)
    assert (filler.overhead, filler.system_overhead) == (5, 8)
    text = filler.prompt(filler.draw(filler.room(50), random.Random(0)))
    assert tokenizer.count_chat([{"role": "user", "content": text}]) == 50


def test_a_template_without_system_messages():
    filler = learn(Words().tokenize, "chat", lambda messages: 5 if len(messages) == 1 else None)
    assert (filler.overhead, filler.system_overhead) == (4, None)


def test_a_model_without_chats_is_refused():
    with pytest.raises(ConfigError, match=r"no chat template.*--endpoint /v1/completions"):
        learn(Words().tokenize, "chat", lambda messages: None)


def test_a_prompt_shorter_than_what_surrounds_it_is_refused():
    tokenizer = Words()
    filler = learn(tokenizer.tokenize, "chat", tokenizer.count_chat)
    assert filler.room(6) == 1
    with pytest.raises(ConfigError, match=r"can't have 5 tokens.*has 5"):
        filler.room(5)


def test_a_tokenizer_that_joins_words_is_refused():
    pairs = {(a, b) for a in GUESSED.words for b in GUESSED.words if hash((a, b)) % 7 == 0}
    pairs = {(a, b) for a in GUESSED.words[2::2] for b in GUESSED.words[1::2]}
    pairs -= set(zip(GUESSED.words, GUESSED.words[1:], strict=False))
    with pytest.raises(ConfigError, match=r"joins words.*--dataset-name custom"):
        learn(Words(joined=pairs).tokenize)


def test_a_tokenizer_of_letters_is_refused():
    with pytest.raises(ConfigError, match=r"only 0 of \d+ common words"):
        learn(lambda text: [ord(char) for char in text.replace(" ", "")])


def test_few_questions_are_asked():
    tokenizer = Words(long=["able", "cat"])
    learn(tokenizer.tokenize)
    assert tokenizer.num_asked < 2 * len(GUESSED.words)


@pytest.mark.parametrize("form", ["text", "ids"])
def test_prompts_of_the_real_model_are_exact(smollm2_path, form):
    with open_model(smollm2_path) as files:
        tokenizer = load_text(files).tokenizer
    filler = learn(tokenizer.encode, form)
    assert len(filler.words) > 200
    for num in (1, 2, 17, 1000):
        drawn = filler.draw(num, random.Random(num))
        assert len(tokenizer.encode(filler.text(drawn))) == num
        if form == "ids":
            assert tokenizer.decode(filler.prompt(drawn)) == " " + filler.text(drawn)
