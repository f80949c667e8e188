"""The cases of tests/diagnose/cases.py that need no reader, under names that older tests use: nothing of its own."""

from typing import Any

from tests.diagnose.cases import NAMES, case

PLAIN = tuple(name for name in NAMES if "observations" in case(name) and "pastes" not in case(name))
ADD = tuple(name for name in PLAIN if name[1] != "-")  # the first seventeen: enough seeds for a fuzzer
CASES = {
    name: {"verdict": case(name)["state"] if case(name)["expect"]["verdict"] == ["pass"] else "other"} for name in PLAIN
}


def observations(name: str) -> dict[str, Any]:
    """The keys of a diagnosis of one case."""
    found: dict[str, Any] = case(name)["observations"]
    return found
