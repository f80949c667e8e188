"""Judging a fake host by one check."""

from typing import Any

import msgspec

from gpucheck.host.source import HostSource
from gpucheck.model import Finding, Gpu, Verdict
from gpucheck.model.facts import Facts
from tests.fakes import FakeHost

FAIL, WARN, SKIP, PASS, UNKNOWN = Verdict.FAIL, Verdict.WARN, Verdict.SKIP, Verdict.PASS, Verdict.UNKNOWN


def judge(check, host) -> list[Finding]:
    """Return the findings about the host, a FakeHost or facts. check: a Check, or the module that defines it."""
    check = getattr(check, "CHECK", check)
    if check.probe is not None:
        return list(check.evaluate(check.probe(host if isinstance(host, FakeHost) else Answers(host))))
    if isinstance(host, FakeHost):
        source = HostSource(host)
        host = source.read(*check.more(source.read("nvml", *check.needs)))
    return list(check.evaluate(host))


class Answers:
    """Facts as a host, for the checks that ask one."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def __getattr__(self, name: str) -> Any:
        return lambda *names: self._answer(name, *names)

    def _answer(self, name: str, names: Any = ()) -> Any:
        facts = self.facts
        if name in ("read_text", "list_names"):
            return (facts.texts if name == "read_text" else facts.folders)[names]
        if name == "packages":
            return None if facts.packages is None else facts.installed(names)
        if name == "loader_libraries":
            return facts.libraries
        answer = getattr(facts, name)
        return {one: answer[one] for one in names} if name in ("services", "python_packages") else answer


def with_health(gpu: Gpu, **changes: object) -> Gpu:
    """The GPU in good health, but for the changes."""
    return msgspec.structs.replace(gpu, health=msgspec.structs.replace(gpu.health, **changes))
