"""Judging a fake host by one check."""

from collections.abc import Iterable

import msgspec

from gpucheck.checks import all_checks
from gpucheck.model import Finding, Gpu, Verdict
from gpucheck.model.facts import BY_NAME, Facts

ALL = {check.name: check for check in all_checks()}
FAIL, WARN, SKIP, PASS, UNKNOWN = Verdict.FAIL, Verdict.WARN, Verdict.SKIP, Verdict.PASS, Verdict.UNKNOWN


def judge(check, host: Facts) -> list[Finding]:
    """Return the findings about the host, from what the check declares, which is given, named or of a module."""
    check = ALL[check] if isinstance(check, str) else getattr(check, "CHECK", check)
    return list(check.evaluate(exactly([*check.needs, *check.more(exactly(check.needs, host))], host)))


def codes(check, host) -> list[str | None]:
    """Return the codes of the findings, which have their verdict and cause in the catalogue; None for PASS."""
    return [finding.code for finding in judge(check, host)]


def exactly(needs: Iterable[str], every: Facts) -> Facts:
    """The facts with these needs and no others."""
    named = {kind: [need.partition(":")[2] for need in needs if need.startswith(f"{kind}:")] for kind in BY_NAME}
    parts = {need: getattr(every, need) for need in needs if ":" not in need}
    answers = {
        field: {name: getattr(every, field)[name] for name in named[kind]}
        for kind, field in BY_NAME.items()
        if kind != "library" and getattr(every, field) is not None
    }
    libraries = {"library_names": tuple(named["library"]), "libraries": every.libraries} if named["library"] else {}
    return Facts(**{"packages": None, **parts, **answers, **libraries})


def with_health(gpu: Gpu, **changes: object) -> Gpu:
    """The GPU in good health, but for the changes."""
    return msgspec.structs.replace(gpu, health=msgspec.structs.replace(gpu.health, **changes))
