"""Judging a fake host by one check."""

import msgspec

from gpucheck.host.source import HostSource
from gpucheck.model import Finding, Gpu, Verdict
from gpucheck.model.facts import Facts
from gpucheck.run.verification import evaluated

FAIL, WARN, SKIP, PASS, UNKNOWN = Verdict.FAIL, Verdict.WARN, Verdict.SKIP, Verdict.PASS, Verdict.UNKNOWN


def judge(check, host) -> list[Finding]:
    """Return the findings about the host. check: a Check, or the module that defines it."""
    check = getattr(check, "CHECK", check)
    if check.probe is None:
        return list(evaluated(check, host if isinstance(host, Facts) else HostSource(host)))
    return list(check.evaluate(check.probe(host)))


def with_health(gpu: Gpu, **changes: object) -> Gpu:
    """The GPU in good health, but for the changes."""
    return msgspec.structs.replace(gpu, health=msgspec.structs.replace(gpu.health, **changes))
