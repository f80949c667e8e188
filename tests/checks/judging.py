"""Judging a fake host by one check."""

import msgspec

from gpucheck.model import Finding, Gpu


def judge(check, host) -> list[Finding]:
    """What the check says about the host."""
    return list(check.evaluate(check.probe(host)))


def with_health(gpu: Gpu, **changes: object) -> Gpu:
    """The GPU in good health, but for the changes."""
    return msgspec.structs.replace(gpu, health=msgspec.structs.replace(gpu.health, **changes))
