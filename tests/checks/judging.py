"""Judging a fake host by one check."""

import msgspec

from gpucheck.host.source import HostSource
from gpucheck.model import Finding, Gpu, Verdict
from gpucheck.model.facts import Facts
from tests.fakes import FakeHost

FAIL, WARN, SKIP, PASS, UNKNOWN = Verdict.FAIL, Verdict.WARN, Verdict.SKIP, Verdict.PASS, Verdict.UNKNOWN


def judge(check, host) -> list[Finding]:
    """Return the findings about the host. check: a Check, or the module that defines it."""
    check = getattr(check, "CHECK", check)
    if check.probe is not None:
        if isinstance(host, Facts):
            host = FakeHost(system_=host.system, pci_=host.pci, nvml_=host.nvml)
        return list(check.evaluate(check.probe(host)))
    source = host if isinstance(host, Facts) else HostSource(host)
    return list(check.evaluate(source.read(*check.more(source.read(*check.needs)))))


def with_health(gpu: Gpu, **changes: object) -> Gpu:
    """The GPU in good health, but for the changes."""
    return msgspec.structs.replace(gpu, health=msgspec.structs.replace(gpu.health, **changes))
