"""Judging a fake host by one check."""

import msgspec

from gpucheck.model import (
    EccCounts,
    Finding,
    Gpu,
    Health,
    PcieErrors,
    RetiredPages,
    RowRemap,
)

HEALTHY = Health(
    persistence=True,
    compute_mode="default",
    mig=False,
    mig_pending=False,
    ecc=True,
    ecc_pending=True,
    ecc_counts=EccCounts(volatile_corrected=3, volatile_uncorrected=0, aggregate_corrected=7, aggregate_uncorrected=0),
    row_remap=RowRemap(corrected=0, uncorrected=0, pending=False, failed=False),
    retired_pages=RetiredPages(single_bit=0, double_bit=0, pending=False),
    pcie_errors=PcieErrors(replays=2, correctable=1, non_fatal=0, fatal=0),
    recovery_action="none",
    clocks_event_reasons=("idle",),
    temperature_c=35,
    temperature_slowdown_c=90,
    power_limit_w=700.0,
    power_default_w=700.0,
    power_min_w=200.0,
    power_max_w=700.0,
    processes=(),
)


def judge(check, host) -> list[Finding]:
    """What the check says about the host."""
    return list(check.evaluate(check.probe(host)))


def with_health(gpu: Gpu, **changes: object) -> Gpu:
    """The GPU in good health, but for the changes."""
    return msgspec.structs.replace(
        gpu, memory_bytes=80 << 30, bar1_bytes=128 << 30, health=msgspec.structs.replace(HEALTHY, **changes)
    )
