"""The vocabularies, expected ids and chat templates that llama.cpp tests itself with.

They lie in the source package of llama-cpp-python, which pip downloads as it is configured; nothing is
copied.
"""

import subprocess
import sys
import tarfile
import unicodedata
from pathlib import Path

import pytest
from message_shapes import SHAPES
from test_template_parity import NOW, SPECIAL, our_rendering, reference_rendering

from freehold.errors import RequestError, UnsupportedModelError
from freehold.files.model import open_model
from freehold.text.gguf_tokenizer import vocabulary_from_gguf
from freehold.text.template import ChatTemplate
from freehold.text.tokenizer import Tokenizer

pytestmark = pytest.mark.slow

PACKAGE = "llama-cpp-python==0.3.36"
SEPARATOR = "\n__ggml_vocab_test__\n"
VOCABULARIES = [
    *("command-r", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2", "llama-bpe", "llama-spm"),
    *("mpt", "phi-3", "qwen2", "qwen35", "refact", "starcoder"),
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder ``models`` of llama.cpp."""
    folder = tmp_path_factory.mktemp("llama.cpp")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        ":all:",
        "--dest",
        str(folder),
    ]
    result = subprocess.run([*command, PACKAGE], check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        members = [member for member in archive if "/vendor/llama.cpp/models/" in member.name]
        archive.extractall(folder, members, filter="data")
    return next(folder.glob("*/vendor/llama.cpp/models"))


@pytest.mark.parametrize("name", VOCABULARIES)
def test_ids_are_the_expected_ones(models: Path, name: str) -> None:
    path = models / f"ggml-vocab-{name}.gguf"
    with open_model(path) as files:
        tokenizer = Tokenizer(vocabulary_from_gguf(files.metadata))
    texts = path.with_suffix(".gguf.inp").read_bytes().decode().split(SEPARATOR)
    lines = path.with_suffix(".gguf.out").read_text().split("\n")
    assert len(texts) > 40
    for text, line in zip(texts, lines, strict=False):
        if name == "qwen35" and not unicodedata.is_normalized("NFC", text):
            continue  # llama.cpp skips the normalization that Qwen's own tokenizer does
        ids = [int(token_id) for token_id in line.split()]
        assert tokenizer.encode(text, add_bos=False) == ids, text
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("name", ["bert-bge", "nomic-bert-moe", "gemma-4", "gpt-neox", "aquila"])
def test_vocabularies_that_freehold_does_not_know_are_refused(models: Path, name: str) -> None:
    with open_model(models / f"ggml-vocab-{name}.gguf") as files, pytest.raises(UnsupportedModelError):
        vocabulary_from_gguf(files.metadata)


def test_templates_of_real_models_render_alike(models: Path) -> None:
    """Every template, every shape. Parts are left out: templates that read text only get them joined."""
    num_templates = num_rendered = 0
    for path in sorted((models / "templates").glob("*.jinja")):
        source = path.read_text()
        template = ChatTemplate(source, special_tokens=SPECIAL, clock=lambda: NOW)
        num_templates += 1
        for shape, (messages, given) in SHAPES.items():
            if shape.startswith("parts"):
                continue
            arguments = {"continue_final_message": False, **given}
            try:
                expected = reference_rendering(source, messages, arguments)
            except Exception:
                with pytest.raises(RequestError):
                    our_rendering(template, messages, arguments)
                continue
            assert our_rendering(template, messages, arguments) == expected, (path.name, shape)
            num_rendered += 1
        template.close()
    assert num_templates >= 50
    assert num_rendered > 2000
