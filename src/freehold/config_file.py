"""The file that ``--config`` names: TOML, or YAML if its name says so. Flat: names of settings and their values."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from freehold.errors import ConfigError

_YAML_ENDINGS = (".yaml", ".yml")

_WORDS = (
    ("tTfF", "bool", r"(?:true|True|TRUE|false|False|FALSE)\Z"),
    ("~nN", "null", r"(?:~|null|Null|NULL)\Z"),
    ([""], "null", r"\Z"),
    ("-+0123456789", "int", r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"),
    ("-+.0123456789", "float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"),
    ("-+.", "float", r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"),
)
"""What isn't a text in the core schema of YAML 1.2: kinds and patterns, by their first characters. The library's are
those of YAML 1.1, to which `off` is false, 010 is eight, 12:30 a number and 2027-01-31 a date."""

_TAG = "tag:yaml.org,2002:"
_BASES = {"0o": 8, "0x": 16}


class Entry(NamedTuple):
    """A key of the file.

    Attributes:
        source: file, and line if it is known.
    """

    key: str
    value: Any
    source: str


def read(path: Path) -> list[Entry]:
    """The keys of a configuration file, each once.

    Raises:
        ConfigError: the file can't be read, or is not what its name says.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"can't read the configuration file {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"the configuration file {path} is not text in UTF-8: {error}") from None
    entries = _yaml(path, text) if path.suffix.lower() in _YAML_ENDINGS else _toml(path, text)
    seen: dict[str, Entry] = {}
    for entry in entries:
        name = entry.key.replace("-", "_")
        if name in seen:
            other = "" if seen[name].key == entry.key else f", as {seen[name].key!r}"
            raise ConfigError(f"key {entry.key!r} in {entry.source} was given already{other}; keep one of them")
        seen[name] = entry
    return entries


def _toml(path: Path, text: str) -> list[Entry]:
    try:
        return [Entry(key, value, str(path)) for key, value in tomllib.loads(text).items()]
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"the configuration file {path} is not TOML: {error}") from None


def _yaml(path: Path, text: str) -> list[Entry]:
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = _resolvers()

    for tag, constructor in _constructors(path).items():
        Loader.add_constructor(tag, constructor)
    try:
        loader = Loader(text)
        document = loader.get_single_node()
        if document is None:
            return []
        if not isinstance(document, yaml.MappingNode):
            raise ConfigError(f"the configuration file {path} holds no settings; write `name: value` in each line")
        return [_entry(path, loader, key, value) for key, value in document.value]
    except yaml.YAMLError as error:
        raise ConfigError(f"the configuration file {path} is not YAML: {_reason(error)}") from None
    except (RecursionError, ValueError) as error:
        raise ConfigError(f"the configuration file {path} can't be read: {error}") from None


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """The words, as the library wants them: by one first character."""
    resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for firsts, kind, pattern in _WORDS:
        for first in firsts:
            resolvers.setdefault(first, []).append((f"{_TAG}{kind}", re.compile(pattern)))
    return resolvers


def _constructors(path: Path) -> dict[str, Callable[[Any, Any], Any]]:
    """What makes values of these words, as the library wants it: by tag. Its own would read 010 as YAML 1.1 does."""
    makers: dict[str, Callable[[str], Any]] = {
        "bool": lambda text: text.lower() == "true",
        "int": lambda text: int(text, _BASES.get(text[:2], 10)),
        "float": lambda text: float(text.replace(".inf", "inf").replace(".nan", "nan")),
    }

    def constructor(kind: str) -> Callable[[Any, Any], Any]:
        patterns = [re.compile(pattern) for _, of, pattern in _WORDS if of == kind]

        def construct(loader: Any, node: Any) -> Any:
            text = loader.construct_scalar(node)
            if not any(pattern.match(text) for pattern in patterns):  # a tag that is written out may say anything
                raise ConfigError(
                    f"{text!r} in {path}, line {node.start_mark.line + 1}, is no {kind} in YAML 1.2; leave its tag out"
                )
            return makers[kind](text.lower())

        return construct

    return {f"{_TAG}{kind}": constructor(kind) for kind in makers}


def _entry(path: Path, loader: Any, key: Any, value: Any) -> Entry:
    source = f"{path}, line {key.start_mark.line + 1}"
    name = loader.construct_object(key, deep=True)
    if not isinstance(name, str):
        raise ConfigError(f"key {name!r} in {source} is no name of a setting")
    entry = Entry(name, loader.construct_object(value, deep=True), source)
    if entry.value is None:
        raise ConfigError(f"key {name!r} in {source} has no value; give it one, or leave it out")
    return entry


def _reason(error: Exception) -> str:
    """What the parser says, in one line."""
    return " ".join(str(error).replace('"<unicode string>", ', "").split())
