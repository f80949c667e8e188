"""The stability promise of docs/schemas.md: what a document of this number had, it still has."""

import json
from pathlib import Path

import pytest

from gpucheck.cli.schema.documents import DOCUMENTS, schema_of

PROMISED = Path(__file__).parents[1] / "data" / "schemas" / "promised.json"
JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
ADVICE = (
    "docs/schemas.md promises this key: keep it, or give the document the next number. "
    "A new key or document is added with: python -m tests.cli.test_schema_promise"
)


def types(node, schema):
    """The JSON types that a value may have."""
    if "$ref" in node:
        return types(schema["$defs"][node["$ref"].rsplit("/", 1)[1]], schema)
    alternatives = (*node.get("anyOf", ()), *node.get("oneOf", ()))
    if alternatives:
        return {kind for one in alternatives for kind in types(one, schema)}
    if "const" in node or "enum" in node:
        return {JSON_TYPES[type(value)] for value in node.get("enum", [node.get("const")])}
    kind = node.get("type", "any")
    return {kind} if isinstance(kind, str) else set(kind)


def keys(schema):
    """Path of each key -> the types that it may have; required keys end in a *."""
    found = {}

    def walk(node, path, seen):
        if not isinstance(node, dict):
            return
        reference = node.get("$ref")
        if reference is not None:
            name = reference.rsplit("/", 1)[1]
            if name not in seen:
                walk(schema["$defs"][name], path, (*seen, name))
            return
        for one in (*node.get("anyOf", ()), *node.get("oneOf", ()), *node.get("prefixItems", ())):
            walk(one, path, seen)
        for name, value in node.get("properties", {}).items():
            place = f"{path}.{name}"
            mark = "*" if name in node.get("required", ()) else ""
            found.setdefault(place + mark, set()).update(types(value, schema))
            walk(value, place, seen)
        for many in ("items", "additionalProperties"):
            walk(node.get(many), f"{path}[]", seen)

    walk(schema, "", ())
    return {path: " or ".join(sorted(kinds)) for path, kinds in found.items()}


def promised():
    return {
        name: {"schema": one.schema, "keys": dict(sorted(keys(schema_of(name)).items()))}
        for name, one in DOCUMENTS.items()
    }


def broken(before, now):
    """What the promise forbids: keys that are gone, no longer always written, or of another type."""
    if before["schema"] != now["schema"]:
        return []
    lost = [path for path in before["keys"] if not {path, f"{path}*"} & now["keys"].keys()]
    changed = [path for path, kinds in before["keys"].items() if now["keys"].get(path, kinds) != kinds]
    return sorted({*lost, *changed})


BEFORE = json.loads(PROMISED.read_text(encoding="utf-8")) if PROMISED.exists() else {}


@pytest.mark.parametrize("name", BEFORE)
def test_nothing_that_is_promised_is_gone(name):
    assert name in DOCUMENTS
    assert broken(BEFORE[name], promised()[name]) == [], ADVICE


def test_every_document_is_promised():
    """New keys too: otherwise the release after could remove them."""
    assert promised() == BEFORE, ADVICE


@pytest.mark.parametrize(
    "change",
    [
        lambda keys: keys.pop(".findings[].verdict*"),
        lambda keys: keys.update({".findings[].verdict": keys.pop(".findings[].verdict*")}),
        lambda keys: keys.update({".host*": "integer"}),
    ],
    ids=["removed", "no longer always there", "another type"],
)
def test_a_broken_promise_is_found(change):
    now = json.loads(json.dumps(BEFORE["report"]))
    assert broken(BEFORE["report"], now) == []
    change(now["keys"])

    assert len(broken(BEFORE["report"], now)) == 1
    assert broken(BEFORE["report"], {**now, "schema": "gpucheck.report/2"}) == []


if __name__ == "__main__":
    PROMISED.parent.mkdir(exist_ok=True)
    PROMISED.write_text(json.dumps(promised(), indent=0) + "\n", encoding="utf-8")
