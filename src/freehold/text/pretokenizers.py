"""How byte-level vocabularies cut text into words before merging, by the name GGUF files give (`tokenizer.ggml.pre`).

The rules are those of each model's own ``tokenizer.json``. Where converters and llama.cpp approximate them (llama.cpp's
regular expressions know fewer classes, and its loader skips Unicode normalization), the model's own rule stands,
because that is what the model was trained with. A kind that isn't listed is refused: a wrong rule gives almost the
right ids, and worse text that nobody notices.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tokenizers import Regex, normalizers, pre_tokenizers

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"


def _modern(digits: str, *, letters: str = r"\p{L}", marks: str = "") -> str:
    """The pattern that cl100k made common: contractions, words, digits, punctuation, white space."""
    word = _WORD if letters == r"\p{L}" else rf"{_LEAD}[{letters}]+"
    return rf"{_CONTRACTION}|{word}|{digits}| ?[^\s\p{{L}}{marks}\p{{N}}]+[\r\n]*|{_SPACES}"


def _cased(digits: str, *, contraction: str) -> str:
    """The pattern that o200k made common: words split where lower case turns to upper case."""
    return (
        rf"{_LEAD}{_UPPER}*{_LOWER}+{contraction}|{_LEAD}{_UPPER}+{_LOWER}*{contraction}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    )


_LLAMA3 = _modern(r"\p{N}{1,3}")
_QWEN2 = _modern(r"\p{N}")
_QWEN35 = _modern(r"\p{N}", letters=r"\p{L}\p{M}", marks=r"\p{M}")
_TEKKEN = _cased(r"\p{N}", contraction="")
_O200K = _cased(r"\p{N}{1,3}", contraction=f"{_CONTRACTION}?")

# Letters of alphabets with upper and lower case (Latin, Greek, Cyrillic, Cherokee, ...) as DeepSeek lists them: code
# points, because editors and version control like to normalize some of these characters.
_DEEPSEEK_LETTERS = (
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A 38C 38E-3A1 "
    "3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A "
    "1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 "
    "1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 "
    "212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D "
    "A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F "
    "104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"
)
_DEEPSEEK_PUNCTUATION = r"!-/:-~！-／：-～‘-‟　-。"
_CJK_AND_HANGUL = "[一-龥ࠀ-一가-퟿]+"


def _character_class(ranges: str) -> str:
    """Characters of hexadecimal code points and ranges of them."""
    return "".join("-".join(chr(int(point, 16)) for point in span.split("-")) for span in ranges.split())


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def _pattern(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([_split(pattern), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _gpt2_single_digits() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


def _falcon() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Punctuation(behavior="contiguous"),
            _gpt2(),
            pre_tokenizers.Digits(individual_digits=False),
            _split("[0-9][0-9][0-9]"),
        ]
    )


def _deepseek(*patterns: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            *map(_split, patterns),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _deepseek_llm() -> pre_tokenizers.PreTokenizer:
    letters = rf"\s?[{_character_class(_DEEPSEEK_LETTERS)}]+"
    return _deepseek("[\r\n]", letters, rf"\s?[{_DEEPSEEK_PUNCTUATION}]+", r"\s+$", _CJK_AND_HANGUL)


def _deepseek_coder() -> pre_tokenizers.PreTokenizer:
    return _deepseek("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK_AND_HANGUL)


def _deepseek_v3() -> pre_tokenizers.PreTokenizer:
    words = (
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
        rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
    )
    return pre_tokenizers.Sequence(
        [
            _split(r"\p{N}{1,3}"),
            _split("[一-龥぀-ゟ゠-ヿ]+"),
            _split(words),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


@dataclass(frozen=True, slots=True)
class PretokenizerKind:
    """One rule.

    Attributes:
        build: makes the pre-tokenizer, byte alphabet included.
        nfc: text is brought to Unicode's composed form first.
        ignores_merges: a word that is a token becomes that token even if no merges lead to it.
        adds_bos: whether raw text begins with BOS where the file doesn't say.
    """

    build: Callable[[], pre_tokenizers.PreTokenizer]
    nfc: bool = False
    ignores_merges: bool = False
    adds_bos: bool = False

    def normalizer(self) -> normalizers.Normalizer | None:
        """The normalizer, None if the text stays as it is."""
        return normalizers.NFC() if self.nfc else None


def _kinds() -> dict[str, PretokenizerKind]:
    gpt2 = PretokenizerKind(_gpt2)
    digits = PretokenizerKind(_gpt2_single_digits)
    falcon = PretokenizerKind(_falcon)
    llama3 = PretokenizerKind(lambda: _pattern(_LLAMA3), ignores_merges=True, adds_bos=True)
    llama3_by_merges = PretokenizerKind(lambda: _pattern(_LLAMA3))
    qwen2 = PretokenizerKind(lambda: _pattern(_QWEN2), nfc=True)
    o200k = PretokenizerKind(lambda: _pattern(_O200K))
    families: dict[PretokenizerKind, tuple[str, ...]] = {
        gpt2: ("gpt-2", "phi-2", "olmo", "jais", "trillion", "gigachat", "a.x-4.0", "mellum", "exaone4"),
        PretokenizerKind(_gpt2, nfc=True): ("mpt",),
        digits: ("smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"),
        PretokenizerKind(_gpt2_single_digits, nfc=True): ("command-r",),
        falcon: ("falcon", "default"),
        llama3: ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        llama3_by_merges: ("dbrx", "smaug-bpe", "chatglm-bpe"),
        PretokenizerKind(lambda: _pattern(_LLAMA3), ignores_merges=True): ("glm4",),
        qwen2: ("qwen2", "deepseek-r1-qwen"),
        PretokenizerKind(lambda: _pattern(_QWEN2)): ("megrez", "hunyuan", "stablelm2"),
        PretokenizerKind(lambda: _pattern(_QWEN35), nfc=True): ("qwen35",),
        PretokenizerKind(lambda: _pattern(_TEKKEN), ignores_merges=True, adds_bos=True): ("tekken",),
        o200k: ("gpt-4o", "llama4"),
        PretokenizerKind(_deepseek_llm): ("deepseek-llm",),
        PretokenizerKind(_deepseek_coder): ("deepseek-coder",),
        PretokenizerKind(_deepseek_v3): ("deepseek-v3", "hunyuan-dense"),
    }
    return {name: kind for kind, names in families.items() for name in names}


PRETOKENIZER_KINDS: Mapping[str, PretokenizerKind] = MappingProxyType(_kinds())
