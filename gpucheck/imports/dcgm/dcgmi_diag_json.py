"""dcgmi diag -j of DCGM 2 to 4: tests in categories, each with results of GPUs and what is wrong with them."""

from collections.abc import Iterator
from typing import Any

from gpucheck.imports._blocks import objects
from gpucheck.imports._json import decode, rows_of, text_of
from gpucheck.imports._kind import Kind
from gpucheck.imports._problem import absent
from gpucheck.imports.dcgm._meaning import messages, unknown_meaning
from gpucheck.imports.dcgm.dcgmi_diag import looked_at
from gpucheck.model.paste import Message, Part

MARKS = ('"DCGM GPU Diagnostic"', '"DCGM Diagnostic"', '"test_categories"')
DEEPEST = 6


def parse(lines: list[str]) -> Part:
    """Failed results as messages. Raises ImportProblem."""
    found: list[Message] = []
    tests = passed = 0
    for test in _tests(decode(lines, "dcgmi diag"), 0):
        name, results = text_of(test.get("name")) or "test", rows_of(test.get("results"))
        words = [text_of(result.get("status")).lower() for result in results]
        tests += 1
        passed += bool(words) and all(word.startswith("pass") for word in words)
        for result, status in zip(results, words, strict=True):
            found += _of_result(name, status, result)
    if not tests:
        raise absent("result of dcgmi diag", "the JSON holds no test with results", "Save it again: dcgmi diag -r 2 -j")
    return Part(messages=tuple(found), looked_at=looked_at(tests, passed))


def _tests(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    """Every object with a name and results, wherever a release put them."""
    if isinstance(value, dict) and isinstance(value.get("results"), list) and "name" in value:
        yield value
    elif depth < DEEPEST:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for one in inner:
            yield from _tests(one, depth + 1)


def _of_result(name: str, status: str, result: dict[str, Any]) -> list[Message]:
    gpu = _gpu(result)
    texts = list(_texts(result.get("warnings"))) + list(_texts(result.get("warning")))
    found = [one for text in texts for one in messages(text, name, 1, gpu)]
    if found or not status.startswith(("fail", "warn")):
        return found
    shown = f"{name}: {status}" + (f": {' '.join(texts)[:300]}" if texts else "")
    return [unknown_meaning(shown, failed=status.startswith("fail"), line=1, gpu=gpu)]


def _gpu(result: dict[str, Any]) -> str | None:
    value = result.get("gpu_id", result.get("gpu_ids"))
    if value is None and str(result.get("entity_group", "GPU")).upper() == "GPU":
        value = result.get("entity_id")
    return str(value) if isinstance(value, (int, str)) and str(value).isdigit() and len(str(value)) < 4 else None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield text_of(value.get("warning"))
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one) if not isinstance(one, list) else ()


KIND = Kind(
    name="dcgmi-diag",
    title="the JSON of dcgmi diag",
    parse=parse,
    hints=MARKS,
    blocks=lambda lines: objects(lines, *MARKS),
)
