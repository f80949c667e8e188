"""PCIe error counters and replays."""

import pytest

from gpucheck.checks.pcie import errors as pcie_errors
from gpucheck.model import AerCounts, NvmlGap, PcieErrors
from tests.checks.judging import FAIL, PASS, SKIP, UNKNOWN, WARN, judge
from tests.checks.pcie.trees import DOWN1, host, tree
from tests.fakes import NO_DRIVER, facts
from tests.machines import p100

NO_AER = {name: {"aer": None} for name in ("root", "up", "down0", "down1")}


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
    made = host(tree(**NO_AER), errors=PcieErrors(replays=9000))

    assert {(f.verdict, f.cause) for f in judge(pcie_errors, made)} == {(WARN, "pcie-errors")}


@pytest.mark.parametrize(("code", "verdict"), [(3, SKIP), (999, UNKNOWN), (None, UNKNOWN)])
def test_nobody_counting_is_no_pass(code, verdict):
    """Neither AER nor NVML."""
    calls = ("nvmlDeviceGetPcieReplayCounter", "NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR")
    gaps = tuple(
        NvmlGap(call=call, subject=f"gpu:{p100(n).pci_bus_id}", code=code, name="Refused")
        for n in range(2)
        for call in calls
        if code
    )

    assert {f.verdict for f in judge(pcie_errors, host(tree(**NO_AER), errors=PcieErrors(), gaps=gaps))} == {verdict}


def test_nobody_counting_without_nvml_is_left_to_the_driver():
    (finding,) = judge(pcie_errors, facts(pci=tree(**NO_AER), nvml=NO_DRIVER))

    assert (finding.verdict, finding.because_of) == (UNKNOWN, "driver")


def test_rate_of_corrected_errors_needs_the_uptime():
    """Without it 700 errors are no rate; uncorrected ones have none anyway."""
    many, few = AerCounts(correctable=700, non_fatal=0, fatal=0), AerCounts(correctable=10, non_fatal=0, fatal=0)
    lost = AerCounts(correctable=0, non_fatal=0, fatal=1)

    def verdict(counts):
        return judge(pcie_errors, host(tree(down1={"aer": counts}), uptime=""))[0].verdict

    assert [verdict(counts) for counts in (many, few, lost)] == [UNKNOWN, PASS, FAIL]
