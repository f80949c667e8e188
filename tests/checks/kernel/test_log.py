"""The kernel log: which lines are findings, about what, and with which action."""

import pytest

from gpucheck.checks.kernel import log as check
from gpucheck.knowledge import causes
from gpucheck.knowledge.xid import xids
from gpucheck.model import KernelLog, PciDevice, Verdict
from tests.checks.judging import judge
from tests.fakes import FakeHost, kernel_log

FAIL, WARN, PASS, UNKNOWN = Verdict.FAIL, Verdict.WARN, Verdict.PASS, Verdict.UNKNOWN
SWITCH = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0)"
PORT = "0000:3a:01.0"
GPU = PciDevice(bus_id="0000:3b:00.0", vendor_id="10de", device_id="2330", class_id="030200", path=(PORT,))
XID = "NVRM: Xid (PCI:0000:3b:00): "


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


def test_the_same_xid_many_times_is_one_finding_with_first_and_last():
    """A storm does not fill the report."""
    (finding,) = judged(*(f"NVRM: Xid (PCI:0000:3b:00): 79, time {n}" for n in range(50)))

    assert finding.seen == "Xid 79: GPU has fallen off the bus, 50 times"
    assert [line.rpartition(" ")[2] for line in finding.evidence[:3]] == ["0", "48", "49"]
    assert finding.evidence[3] == "50 messages, first [1 s], last [50 s]"


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
        ("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x24:0xffff:1211)", FAIL, "gpu-lost", "gpu:0000:3b:00.0"),
        ("NVRM: API mismatch: the client has version 570.1", WARN, "driver-mismatch", "host"),
        (
            "pci 0000:3b:00.0: BAR 1: no space for [mem size 0x1000000000 64bit pref]",
            WARN,
            "rebar-off",
            "gpu:0000:3b:00.0",
        ),
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
        "pcieport 0000:99:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
        "pcieport 0000:99:00.0: pciehp: Slot(4): Link Down",
        "pci 0000:99:00.0: BAR 1: no space for [mem size 0x1000000000 64bit pref]",
        "mlx5_core 0000:99:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
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

    assert (finding.verdict, finding.cause, finding.subject) == (FAIL, cause, "host")
    assert f"at PCIe port {PORT}, above GPU 0000:3b:00.0" in finding.seen


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
    ("text", "verdict", "says"),
    [
        ("from 0x0 (None) to 0x1 (GPU Reset Required)", FAIL, "reset the GPU"),
        ("from 0x0 (None) to 0x1 (PF FLR)", FAIL, "reset the GPU"),
        ("from 0x0 (None) to 0x2 (Node Reboot Required)", FAIL, "reboot"),
        ("from 0x0 (None) to 0x2 (OS Reboot)", FAIL, "reboot"),
        ("from 0x0 (None) to 0x3 (Drain P2P)", WARN, "end the jobs"),
        ("from 0x0 (None) to 0x4 (Drain and Reset)", FAIL, "reset the GPU"),
        ("from 0x0 (None) to 0x5 (Recover IMEX Domain)", FAIL, "nvidia-imex"),
        ("from 0x0 (None) to 0x2 (A name of a later driver)", FAIL, "reboot"),
        ("to something else", FAIL, "do what the line says"),
    ],
)
def test_the_recovery_action_is_that_of_the_line(text, verdict, says):
    """Xid 154, in the words of several driver versions."""
    (finding,) = judged(f"{XID}154, GPU recovery action changed {text}")

    assert (finding.verdict, finding.cause) == (verdict, "gpu-reset-required")
    assert says in finding.fix


def test_the_latest_recovery_action_counts():
    """Back to None: the reset was done."""
    done = f"{XID}154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    (finding,) = judged(f"{XID}154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", done)

    assert finding.verdict is PASS


@pytest.mark.parametrize(
    ("text", "verdict", "cause", "fix"),
    [
        (
            "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000)",
            FAIL,
            "nvlink-down",
            "signal",
        ),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x016415c6 0x00000000)", FAIL, "nvlink-down", "administrator"),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 01 (0x021425c6 0x00000000)", FAIL, "nvlink-down", "other end"),
        ("149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 01 (0x00082226 0x00000001)", WARN, "nvlink-errors", "cables"),
        (
            "145, pid=1, name=ray::W, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)",
            WARN,
            "nvlink-errors",
            "",
        ),
        ("145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x000988e2 0x00000008)", WARN, "nvlink-errors", "Xid 154"),
        (
            "146, TLW_RX/TLW_RX_PIPE0 Fatal XC0 i0 Link 00 (0x0000000a 0x00000004)",
            FAIL,
            "nvlink-errors",
            "reset the GPU",
        ),
        ("144, SAW_EGR Nonfatal XC0 i0 Link 00 (0x00000004 0x00000001)", WARN, "nvlink-errors", "sub-code"),
        ("150, MSE_WATCHDOG Fatal XC0 i0 Link -1 (0x00000000 0x00000000)", FAIL, "nvlink-errors", "reset the GPU"),
        ("145, RLW_REMAP Nonfatal XC0 i0 Link 02", WARN, "nvlink-errors", "sub-code"),
    ],
)
def test_an_nvlink_5_error_is_judged_by_unit_sub_code_and_status(text, verdict, cause, fix):
    """Lines of leptonai/gpud's tests and of public reports; the decode table is NVIDIA's."""
    (finding,) = judged(f"{XID}{text}")

    assert (finding.verdict, finding.cause) == (verdict, cause)
    assert fix in finding.fix


def test_an_nvlink_5_status_that_the_catalogue_ignores_is_no_finding():
    (finding,) = judged(f"{XID}145, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004 0x00000100)")

    assert finding.verdict is PASS


@pytest.mark.parametrize(
    ("line", "subject"),
    [
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 95, pid=7194, Uncontained", "gpu:0000:3b:00.0"),
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:01 GPU-CI:02): 95, pid=9, name=a", "gpu:0000:3b:00.0"),
        ("NVRM: Xid (0000:03:00): 95, Channel 00000001", "gpu:0000:03:00.0"),
        ("NVRM: Xid (PCI:3B:00.0): 95, x", "gpu:0000:3b:00.0"),
        ("NVRM: Xid (PCI:0000:xx:00): 95, x", "host"),
        ("NVRM: Xid (PCI:...): 95, x", "host"),
        ("NVRM: Xid (PCI:<redacted>): 95, x", "host"),
        ("NVRM: Xid (PCI:0000:00:00): 95, x", "host"),
        ("NVRM: Xid: 95, x", "host"),
    ],
)
def test_every_generation_of_the_xid_line(line, subject):
    """A bus id that the poster removed is not invented."""
    (finding,) = judged(line)

    assert (finding.subject, finding.cause) == (subject, "ecc-uncorrected")


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("12028, Non-fatal, Link 32 egress non-posted PRIV error (First)", WARN),
        ("20034, Fatal, Link 30 LTSSM Fault Up", FAIL),
        ("20034, Data {0x50610002, 0x10100030}", FAIL),
        ("11111, Data {0x50610002, 0x10100030}", WARN),
        ("22013, Non-fatal, Link 60 Minion Link DLREQ interrupt", PASS),
        ("22013, Fatal, Link 60 Minion Link DLREQ interrupt", FAIL),
    ],
)
def test_an_sxid_is_judged_by_its_severity_and_code(line, verdict):
    assert [finding.verdict for finding in judged(f"{SWITCH}: {line}")] == [verdict]


def test_fabric_managers_own_words_are_an_sxid():
    (finding,) = judged(
        "detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 33"
    )

    assert (finding.subject, finding.cause) == ("link:0000:86:00.0", "nvswitch-error")


def test_a_module_that_was_loaded_later_was_not_the_rejected_one():
    """The kernel does not name the module; vboxdrv and v4l2loopback are unsigned too."""
    (finding,) = judged("Loading of unsigned module is rejected", "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580")

    assert finding.verdict is PASS


def test_a_memory_window_that_found_room_at_last_is_no_finding():
    (finding,) = judged(
        "pci 0000:3b:00.0: BAR 1 [mem size 0x1000000000 64bit pref]: can't assign; no space",
        "pci 0000:3b:00.0: BAR 1 [mem 0x20000000000-0x20fffffffff 64bit pref]: assigned",
    )

    assert finding.verdict is PASS


def test_an_nvswitch_has_pcie_errors_too():
    """It is a PCI function like the GPUs."""
    switch = PciDevice(bus_id="0000:05:00.0", vendor_id="10de", device_id="22a3", class_id="068000")
    line = "nvidia-nvswitch 0000:05:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer"
    (finding,) = judge(check, FakeHost(kernel_log_=kernel_log(line), pci_=(GPU, switch)))

    assert (finding.subject, finding.verdict, finding.cause) == ("link:0000:05:00.0", FAIL, "pcie-errors")
