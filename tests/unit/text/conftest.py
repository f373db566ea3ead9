import pytest

from freehold.files.model import open_model
from freehold.files.vocabulary import TextAssets, load_text
from freehold.text.tokenizer import Tokenizer
from text_vocabularies import byte_level_tokenizer, sentencepiece_tokenizer


@pytest.fixture(scope="session")
def smollm2(smollm2_path) -> TextAssets:
    with open_model(smollm2_path) as files:
        return load_text(files)


@pytest.fixture(params=["smollm2", "byte_level", "sentencepiece"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """Each kind of vocabulary, the default model's among them."""
    if request.param == "smollm2":
        assets: TextAssets = request.getfixturevalue("smollm2")
        return assets.tokenizer
    return byte_level_tokenizer() if request.param == "byte_level" else sentencepiece_tokenizer()
