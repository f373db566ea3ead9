from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from freehold.files.model import open_model
from freehold.files.vocabulary import TextAssets, load_text


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> TextAssets:
    with open_model(smollm2_path) as files:
        return load_text(files)


@pytest.fixture(scope="session")
def hf_smollm2(smollm2_path: Path) -> Any:
    """Hugging Face's conversion of the same file."""
    return AutoTokenizer.from_pretrained(str(smollm2_path.parent), gguf_file=smollm2_path.name)
