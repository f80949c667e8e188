"""The kernel log: lines that indicate trouble, their causes and their consequences."""

import pytest
from msgspec.structs import replace

from gpucheck.checks.kernel import log as check
from gpucheck.model import KernelLog, PciDevice
from tests.checks.judging import FAIL, PASS, UNKNOWN, WARN, judge
from tests.checks.kernel.logs import GPU, PORT, XID, judged
from tests.fakes import facts, kernel_log

LOST = f"{XID}79, GPU has fallen off the bus."
STARTED = "Linux version 5.15.0-91-generic (buildd@lcy02-amd64-045) (gcc 11.4.0) #101-Ubuntu SMP"


@pytest.mark.parametrize(
    "line",
    [
        "AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:99:00.0 domain=0x0010]",
        "pcieport 0000:99:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
        "pcieport 0000:99:00.0: pciehp: Slot(4): Link Down",
        "pci 0000:99:00.0: BAR 1: no space for [mem size 0x1000000000 64bit pref]",
        "nvme 0000:99:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
    ],
)
def test_trouble_of_another_device_is_no_finding(line):
    (finding,) = judged(line)

    assert finding.verdict is PASS


@pytest.mark.parametrize(("begins_s", "gone"), [(0.0, False), (20.0, False), (10 * 86400.0, True)])
def test_a_pass_states_which_messages_are_overwritten(begins_s, gone):
    (finding,) = judge(check, facts(kernel_log=KernelLog(source="journalctl --dmesg", begins_s=begins_s)))

    assert finding.verdict is PASS
    assert ("first 10.0 days after boot are overwritten" in finding.seen) is gone


def test_a_log_that_may_not_be_read_is_unknown():
    (finding,) = judge(check, facts(kernel_log=KernelLog(denied="/dev/kmsg: Operation not permitted")))

    assert (finding.verdict, finding.code) == (UNKNOWN, "kernel.log-unreadable")


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (f"pcieport {PORT}: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer", "pcie-errors"),
        (f"pcieport {PORT}: DPC: containment event, status:0x1f01 source:0x0000", "pcie-errors"),
        (f"pcieport {PORT}: pciehp: Slot(4): Link Down", "gpu-lost"),
    ],
)
def test_a_port_above_a_gpu_fails_and_names_both(line, cause):
    """On a host whose PCI bus was read, ports above something else are not looked at."""
    (finding,) = judged(line)

    assert (finding.verdict, finding.cause, finding.subject) == (FAIL, cause, "link:0000:3a:01.0")
    assert f"at PCIe port {PORT}, above GPU 0000:3b:00.0" in finding.seen


NIC_PORT = "0000:00:00.0"  # a root port of GB10, though elsewhere it is the host bridge
CARD = PciDevice(
    bus_id="0000:01:00.0",
    vendor_id="15b3",
    device_id="1021",
    class_id="020000",
    path=(NIC_PORT,),
    infiniband_names=("rocep1s0f0",),
)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (f"pcieport {NIC_PORT}: AER: Corrected error message received from {NIC_PORT}", "pcie-errors"),
        (f"pcieport {NIC_PORT}: pciehp: Slot(4): Link Down", "pcie-errors"),
        # DGX Spark whose ConnectX-7 left the bus (GitHub file 55093692004).
        (f"pci {NIC_PORT}: broken device, retraining non-functional downstream link", "pcie-link-downgraded"),
    ],
)
def test_a_port_above_a_network_card_is_a_warning(line, cause):
    """Its GPUs work; jobs on several hosts do not. A port of an adapter without RDMA is another device's."""
    log = kernel_log(line)

    (finding,) = judge(check, facts(kernel_log=log, pci=(GPU, CARD)))
    (other,) = judge(check, facts(kernel_log=log, pci=(GPU, replace(CARD, infiniband_names=()))))

    assert (finding.verdict, finding.cause, finding.subject) == (WARN, cause, f"link:{NIC_PORT}")
    assert "above network card 0000:01:00.0" in finding.seen
    assert other.verdict is PASS


def test_a_pcie_error_of_a_network_card_with_rdma_is_a_warning_with_any_driver():
    log = kernel_log("ice 0000:01:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer")

    (finding,) = judge(check, facts(kernel_log=log, pci=(GPU, CARD)))
    (other,) = judge(check, facts(kernel_log=log, pci=(GPU, replace(CARD, infiniband_names=()))))

    assert (finding.verdict, finding.cause, finding.subject) == (WARN, "pcie-errors", "nic:0000:01:00.0")
    assert other.verdict is PASS


def test_an_error_above_a_network_card_is_no_consequence_of_one_of_a_gpu():
    lost = f"{XID}79, pid=4012, name=python3, GPU has fallen off the bus."
    log = kernel_log(lost, f"pcieport {NIC_PORT}: DPC: containment event, status:0x1f01 source:0x0000")

    found = judge(check, facts(kernel_log=log, pci=(GPU, CARD)))

    assert [(one.verdict, one.subject) for one in found] == [(FAIL, "gpu:0000:3b:00.0"), (WARN, f"link:{NIC_PORT}")]


def test_consequences_are_part_of_the_error_that_caused_them():
    """One root cause is one finding: what the GPU says after it fell off the bus tells nothing new."""
    (lost, action) = judged(
        f"pcieport {PORT}: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
        f"{XID}79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
        f"{XID}154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
        f"{XID}119, pid=1, name=x, Timeout after 6s of waiting for RPC response from GPU0 GSP!",
        f"{XID}45, pid=1, name=x, Ch 00000008",
        "NVRM: A GPU crash dump has been created. If possible, please run",
    )

    assert (lost.cause, lost.subject) == ("gpu-lost", "gpu:0000:3b:00.0")
    assert any("Xid 119" in line for line in lost.evidence)
    assert any("Xid 45" in line for line in lost.evidence)
    assert any("fatal PCIe error" in line for line in lost.evidence)
    assert action.seen == "Xid 154: host reboot required (Node Reboot Required)"


def test_an_error_before_the_gpu_was_lost_is_an_error_of_its_own():
    findings = judged(f"{XID}48, An uncorrectable double bit error", f"{XID}79, GPU has fallen off the bus.")

    assert [finding.cause for finding in findings] == ["ecc-uncorrected", "gpu-lost"]


@pytest.mark.parametrize(
    ("lines", "verdict"), [([LOST, STARTED], WARN), ([STARTED, LOST], FAIL), ([LOST, STARTED, LOST], FAIL)]
)
def test_an_error_before_the_host_started_again_is_no_failure_of_now(lines, verdict):
    """A file of syslog has the messages of several boots; that of a host begins with its last."""
    (finding,) = judged(*lines)

    assert (finding.verdict, finding.cause) == (verdict, "gpu-lost")


def test_an_error_of_another_gpu_is_no_consequence():
    findings = judged(f"{XID}79, GPU has fallen off the bus.", "NVRM: Xid (PCI:0000:4c:00): 119, pid=1, Timeout")

    assert [finding.subject for finding in findings] == ["gpu:0000:3b:00.0", "gpu:0000:4c:00.0"]


def test_the_cause_that_a_cleanup_names_is_the_finding():
    """Xid 45 says which Xid it cleans up after; the log may have lost that one."""
    (alone,) = judged(f"{XID}45, pid=1, name=x, Ch 00000008 caused by previous Xid 145")
    (both,) = judged(
        f"{XID}119, pid=1, name=x, Timeout", f"{XID}45, pid=1, name=x, Ch 00000008 caused by previous Xid 119"
    )

    assert alone.seen == "Xid 145: NVLink 5 error"
    assert both.seen == "Xid 119: the GPU System Processor (GSP) does not answer"


@pytest.mark.parametrize(
    "lines",
    [
        # The kernel does not name the rejected module; vboxdrv and v4l2loopback are unsigned too.
        ["Loading of unsigned module is rejected", "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580"],
        [
            "pci 0000:3b:00.0: BAR 1 [mem size 0x1000000000 64bit pref]: can't assign; no space",
            "pci 0000:3b:00.0: BAR 1 [mem 0x20000000000-0x20fffffffff 64bit pref]: assigned",
        ],
        # The reset was done.
        [
            f"{XID}154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            f"{XID}154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
        ],
    ],
    ids=["module loaded later", "memory window found room", "recovery action done"],
)
def test_error_that_a_later_line_revokes_is_no_finding(lines):
    (finding,) = judged(*lines)

    assert finding.verdict is PASS


def test_an_nvswitch_has_pcie_errors_too():
    """It is a PCI function like the GPUs."""
    switch = PciDevice(bus_id="0000:05:00.0", vendor_id="10de", device_id="22a3", class_id="068000")
    line = "nvidia-nvswitch 0000:05:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer"
    (finding,) = judge(check, facts(kernel_log=kernel_log(line), pci=(GPU, switch)))

    assert (finding.subject, finding.verdict, finding.cause) == ("link:0000:05:00.0", FAIL, "pcie-errors")
