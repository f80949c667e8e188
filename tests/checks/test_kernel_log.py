"""The kernel log: which lines are findings, about what, and with which action."""

import pytest

from gpucheck.checks import kernel_log as check
from gpucheck.knowledge import causes
from gpucheck.knowledge.xid import xids
from gpucheck.model import KernelLog, PciDevice, Verdict
from tests.checks.judging import judge
from tests.fakes import FakeHost, kernel_log

FAIL, WARN, PASS, UNKNOWN = Verdict.FAIL, Verdict.WARN, Verdict.PASS, Verdict.UNKNOWN
SWITCH = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0)"
GPU = PciDevice(bus_id="0000:3b:00.0", vendor_id="10de", device_id="2330", class_id="030200")


def judged(*lines):
    return judge(check, FakeHost(kernel_log_=kernel_log(*lines), pci_=(GPU,)))


@pytest.mark.parametrize(
    ("code", "verdict", "cause"),
    [
        (79, FAIL, "gpu-lost"),
        (48, FAIL, "ecc-uncorrected"),
        (63, WARN, "row-remap"),
        (64, FAIL, "row-remap"),
        (74, FAIL, "nvlink-down"),
        (119, FAIL, "gsp-error"),
        (154, FAIL, "gpu-reset-required"),
        (9999, WARN, "xid"),
    ],
)
def test_an_xid_is_judged_by_its_code(code, verdict, cause):
    """On the GPU that the line names."""
    (finding,) = judged(f"NVRM: Xid (PCI:0000:3B:00): {code}, pid=1, something")

    assert (finding.verdict, finding.cause, finding.subject) == (verdict, cause, "gpu:0000:3b:00.0")
    assert f"Xid {code}" in finding.seen


@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_an_applications_own_fault_is_no_fault_of_the_host(code):
    """A kernel with a bad pointer says nothing about the GPU."""
    (finding,) = judged(f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=1")

    assert finding.verdict is PASS


def test_the_same_xid_many_times_is_one_finding_with_its_last_lines():
    """A storm does not fill the report."""
    (finding,) = judged(*(f"NVRM: Xid (PCI:0000:3b:00): 79, time {n}" for n in range(50)))

    assert "50 times" in finding.seen
    assert len(finding.evidence) == 4
    assert finding.evidence[-1] == "47 earlier lines"


@pytest.mark.parametrize(
    ("line", "verdict", "cause", "subject"),
    [
        (
            "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32",
            WARN,
            "nvswitch-error",
            "link:0000:05:00.0",
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 32",
            FAIL,
            "nvswitch-error",
            "link:0000:05:00.0",
        ),
        ("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x24:0xffff:1211)", WARN, "gpu-lost", "host"),
        ("NVRM: API mismatch: the client has version 570.1", WARN, "driver-mismatch", "host"),
        ("pci 0000:3b:00.0: BAR 1: no space for [mem size 0x1000000000 64bit pref]", WARN, "rebar-off", "host"),
        (
            "DMAR: [DMA Write NO_PASID] Request device [3b:00.0] fault addr 0xf000 [fault reason 0x05]",
            FAIL,
            "iommu-translation",
            "gpu:0000:3b:00.0",
        ),
        (
            "AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:3b:00.0 domain=0x0010 address=0xf000]",
            FAIL,
            "iommu-translation",
            "gpu:0000:3b:00.0",
        ),
        (
            "nvidia 0000:3b:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0014 address=0xf000 flags=0x0030]",
            FAIL,
            "iommu-translation",
            "gpu:0000:3b:00.0",
        ),
    ],
)
def test_other_lines_that_tell_of_trouble(line, verdict, cause, subject):
    """Switches, initialisation, address space, blocked DMA."""
    (finding,) = judged(line)

    assert (finding.verdict, finding.cause, finding.subject) == (verdict, cause, subject)


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.178.04",
        "nvidia-nvlink: Nvlink Core is being initialized, major device number 511",
        "DMAR: IOMMU enabled",
        "AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:99:00.0 domain=0x0010]",
    ],
)
def test_ordinary_lines_are_no_findings(line):
    """Nor is another device's trouble."""
    (finding,) = judged(line)

    assert finding.verdict is PASS


def test_a_log_that_may_not_be_read_is_unknown():
    """With the command that may."""
    (finding,) = judge(check, FakeHost(kernel_log_=KernelLog(denied="/dev/kmsg: Operation not permitted")))

    assert (finding.verdict, finding.fix) == (UNKNOWN, "sudo gpucheck verify --only kernel-log")


def test_every_code_of_the_table_leads_to_a_known_cause():
    """And to an action."""
    for code, xid in xids().items():
        assert xid.immediate, code
        assert xid.cause is None or xid.cause in causes(), code
