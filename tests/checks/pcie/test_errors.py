"""PCIe error counters and replays."""

from dataclasses import replace

import msgspec
import pytest

from gpucheck.checks.pcie import errors as pcie_errors
from gpucheck.model import AerCounts, NvmlGap, PcieErrors
from tests.checks.judging import FAIL, PASS, SKIP, UNKNOWN, WARN, judge
from tests.checks.pcie.trees import DOWN1, host, tree
from tests.fakes import NO_DRIVER


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        (AerCounts(correctable=500, non_fatal=0, fatal=0), PASS),
        (AerCounts(correctable=700, non_fatal=0, fatal=0), WARN),
        (AerCounts(correctable=0, non_fatal=1, fatal=0), FAIL),
        (AerCounts(correctable=0, non_fatal=0, fatal=1), FAIL),
    ],
)
def test_corrected_errors_are_judged_by_their_rate_and_lost_packets_always(counts, verdict):
    """The machine is up for ten hours; errors are often booked at the far end of the link."""
    (finding,) = judge(pcie_errors, host(tree(down1={"aer": counts})))

    assert finding.verdict is verdict
    assert (finding.subject, finding.cause) == (("host", None) if verdict is PASS else (f"link:{DOWN1}", "pcie-errors"))


def test_replays_that_only_nvml_counts_are_seen():
    """The firmware may own AER."""
    none = {name: {"aer": None} for name in ("root", "up", "down0", "down1")}
    made = host(tree(**none), errors=PcieErrors(replays=9000))

    assert {(f.verdict, f.cause) for f in judge(pcie_errors, made)} == {(WARN, "pcie-errors")}


def test_nobody_counting_is_no_pass():
    """Neither AER nor NVML."""
    names = ("root", "up", "down0", "down1")
    made = host(tree(**{name: {"aer": None} for name in names}), errors=PcieErrors())
    calls = ("nvmlDeviceGetPcieReplayCounter", "NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR")
    gaps = {
        code: tuple(
            NvmlGap(call=call, subject=f"gpu:{gpu.pci_bus_id}", code=code, name="Refused")
            for gpu in made.nvml().gpus
            for call in calls
        )
        for code in (3, 999)
    }

    def with_gaps(code):
        return replace(made, nvml_=msgspec.structs.replace(made.nvml(), gaps=gaps[code]))

    assert {f.verdict for f in judge(pcie_errors, with_gaps(3))} == {SKIP}
    assert {f.verdict for f in judge(pcie_errors, with_gaps(999))} == {UNKNOWN}
    assert {f.verdict for f in judge(pcie_errors, made)} == {UNKNOWN}
    assert {f.because_of for f in judge(pcie_errors, replace(made, nvml_=NO_DRIVER))} == {"driver"}


def test_rate_of_corrected_errors_needs_the_uptime():
    """Without it 700 errors are no rate; uncorrected ones have none anyway."""
    many, few = AerCounts(correctable=700, non_fatal=0, fatal=0), AerCounts(correctable=10, non_fatal=0, fatal=0)
    lost = AerCounts(correctable=0, non_fatal=0, fatal=1)

    def verdict(counts):
        return judge(pcie_errors, host(tree(down1={"aer": counts}), uptime=""))[0].verdict

    assert [verdict(counts) for counts in (many, few, lost)] == [UNKNOWN, PASS, FAIL]
