"""The JSON Schema Test Suite: each schema is enforced as it says, or refused by name; none is ignored in silence.

It lies in the source package of jsonschema, which pip downloads as it is configured; nothing is copied.
"""

import json
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice, permutations, product
from pathlib import Path
from typing import Any

import pytest
from byte_grammars import Fresh, follows

from freehold.errors import GrammarError
from freehold.grammar.constraint import JsonSchema
from freehold.grammar.reasons import reason_of
from freehold.grammar.schema_values import SchemaError
from freehold.grammar.source import ConstraintError
from freehold.protocol import Grammar, Sampling

pytestmark = pytest.mark.slow

PACKAGE = "jsonschema==4.26.0"
DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
MOST_ORDERS = 200

NARROWER = {
    "optional/format/date-time.json": "leap second",
    "optional/format/time.json": "leap second",
    "optional/format/hostname.json": "punycoded",
    "optional/ecmascript-regex.json": "ECMA 262",
}
"""By file, what descriptions of valid values hold that are refused nevertheless: leap seconds with an offset, encoded
host names, and control characters, which have no spelling."""

SPELLED_ALIKE = {"optional/zeroTerminatedFloats.json"}
"""Tells 1.0 from 1 by its spelling."""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder ``tests`` of the suite."""
    folder = tmp_path_factory.mktemp("jsonschema")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    result = subprocess.run([*command, "--dest", str(folder), PACKAGE], check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, [one for one in archive if "/json/tests/" in one.name], filter="data")
    return next(folder.glob("*/json/tests"))


def spellings(value: Any) -> Iterator[str]:
    """JSON texts of a value: its properties in any order, since a schema fixes one, and its numbers in any form."""
    if isinstance(value, dict):
        for order in islice(permutations(value.items()), MOST_ORDERS):
            names = [json.dumps(name, ensure_ascii=False) for name, _ in order]
            for parts in islice(product(*(list(spellings(part)) for _, part in order)), 30):
                yield "{" + ",".join(f"{name}:{part}" for name, part in zip(names, parts, strict=True)) + "}"
    elif isinstance(value, list):
        for parts in islice(product(*(list(islice(spellings(part), 30)) for part in value)), MOST_ORDERS):
            yield "[" + ",".join(parts) + "]"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from {json.dumps(value), format(Decimal(repr(value)), "f"), *_whole(value)}
    else:
        yield json.dumps(value, ensure_ascii=False)


def _whole(value: float) -> Iterator[str]:
    if abs(value) < 1e16 and value == int(value):
        yield from (str(int(value)), f"{int(value)}.0")


def keywords(schema: Any) -> set[str]:
    """All names within a schema."""
    if isinstance(schema, dict):
        return {*schema, *(name for part in schema.values() for name in keywords(part))}
    return {name for part in schema for name in keywords(part)} if isinstance(schema, list) else set()


def names_a_part(reason: str, schema: Any) -> bool:
    """Whether a refusal names one of the schema's keywords, or says that nothing satisfies it."""
    words = set(re.findall(r"[$A-Za-z-]+", reason))
    return bool(words & keywords(schema)) or "nsatisfiable" in reason or (schema == {} or schema is False)


@pytest.mark.parametrize("draft", DRAFTS)
def test_every_schema_is_enforced_or_refused_by_name(suite: Path, fresh: Fresh, draft: str) -> None:
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for path in sorted((suite / draft).rglob("*.json")):
        name = path.relative_to(suite / draft).as_posix()
        if name == "format.json" or name in SPELLED_ALIKE:
            continue  # says that format is a remark: here it is a rule, and optional/format has the tests of that
        for group in json.loads(path.read_text()):
            schema = group["schema"]
            if isinstance(schema, dict):
                schema = {"$schema": DRAFTS[draft], **schema}
            try:
                compiled = fresh(JsonSchema(schema))
            except (SchemaError, ConstraintError, GrammarError) as error:
                reason = reason_of(str(error)) if isinstance(error, GrammarError) else str(error)
                counts["refused"] += 1
                if not names_a_part(reason, group["schema"]):
                    wrong.append(f"{name}: {group['description']}: refused without a name: {reason}")
                continue
            counts["enforced"] += 1
            for test in group["tests"]:
                is_valid = any(
                    follows(compiled.begin(Grammar(source=b""), Sampling()), text) for text in spellings(test["data"])
                )
                counts["tests"] += 1
                about = f"{group['description']} {test['description']}"
                if is_valid == test["valid"]:
                    continue
                if test["valid"] and NARROWER.get(name, "\0") in about:
                    counts["narrower"] += 1
                    continue
                wrong.append(f"{name}: {about}: is {'valid' if test['valid'] else 'invalid'}: {test['data']!r}")
    print(draft, dict(counts))
    assert not wrong, "\n".join(wrong)
    assert counts["enforced"] >= 140, counts
    assert counts["narrower"] <= 10
