import datetime
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer
from transformers.utils import chat_template_utils

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


class FrozenClock(datetime.datetime):
    """Tells one time."""

    @classmethod
    def now(cls, tz: Any = None) -> "FrozenClock":
        return cls(2026, 3, 4, 15, 6, 7)


@pytest.fixture(autouse=True)
def _same_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template_utils, "datetime", FrozenClock)
