"""Xid and SXid lines: codes, severities, units and recovery actions."""

import re

import pytest

from gpucheck.knowledge.xid import nvlink5, xids
from tests.checks.judging import FAIL, PASS, WARN
from tests.checks.kernel.logs import XID, judged

SWITCH = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0)"


def test_an_xid_that_the_catalogue_does_not_have_is_a_warning():
    (finding,) = judged("NVRM: Xid (PCI:0000:3B:00): 9999, pid=1, something")

    assert (finding.verdict, finding.cause, finding.subject) == (WARN, "xid", "gpu:0000:3b:00.0")
    assert "Xid 9999" in finding.seen


@pytest.mark.parametrize(
    "text", ["13", "31", "43", "45", "145, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004 0x00000100)"]
)
def test_fault_of_an_application_or_an_ignored_status_is_no_fault_of_the_host(text):
    """A kernel with a bad pointer states nothing about the GPU. The catalogue ignores the NVLink 5 status."""
    (finding,) = judged(f"{XID}{text}, pid=1")

    assert finding.verdict is PASS


def test_the_same_xid_many_times_is_one_finding_with_first_and_last():
    """A storm does not fill the report."""
    (finding,) = judged(*(f"NVRM: Xid (PCI:0000:3b:00): 79, time {n}" for n in range(50)))

    assert finding.seen == "Xid 79: GPU has fallen off the bus, 50 times"
    assert [line.rpartition(" ")[2] for line in finding.evidence[:3]] == ["0", "48", "49"]
    assert finding.evidence[3] == "50 messages, first [1 s], last [50 s]"


@pytest.mark.parametrize(
    ("text", "verdict", "action"),
    [
        ("from 0x0 (None) to 0x1 (GPU Reset Required)", FAIL, "reset-gpu"),
        ("from 0x0 (None) to 0x1 (PF FLR)", FAIL, "reset-gpu"),
        ("from 0x0 (None) to 0x2 (Node Reboot Required)", FAIL, "reboot"),
        ("from 0x0 (None) to 0x2 (OS Reboot)", FAIL, "reboot"),
        ("from 0x0 (None) to 0x3 (Drain P2P)", WARN, "wait"),
        ("from 0x0 (None) to 0x4 (Drain and Reset)", FAIL, "reset-gpu"),
        ("from 0x0 (None) to 0x5 (Recover IMEX Domain)", FAIL, "restart-service"),
        ("from 0x0 (None) to 0x2 (A name of a later driver)", FAIL, "reboot"),
        ("to something else", FAIL, "contact-support"),
    ],
)
def test_the_recovery_action_is_that_of_the_line(text, verdict, action):
    """Xid 154, in the words of several driver versions."""
    (finding,) = judged(f"{XID}154, GPU recovery action changed {text}")

    assert (finding.verdict, finding.cause) == (verdict, "gpu-reset-required")
    assert finding.action == action


@pytest.mark.parametrize(
    ("text", "verdict", "cause", "row"),
    [
        ("149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000)", FAIL, "nvlink-down", (4, 0)),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x016415c6 0x00000000)", FAIL, "nvlink-down", (22, 0)),
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 01 (0x021425c6 0x00000000)", FAIL, "nvlink-down", (33, 0)),
        ("149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 01 (0x00082226 0x00000001)", WARN, "nvlink-errors", (0, 1)),
        (
            "145, pid=1, name=ray::W, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)",
            WARN,
            "nvlink-errors",
            (0, 8),
        ),
        ("145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x000988e2 0x00000008)", WARN, "nvlink-errors", (0, 8)),
        ("146, TLW_RX/TLW_RX_PIPE0 Fatal XC0 i0 Link 00 (0x0000000a 0x00000004)", FAIL, "nvlink-errors", (0, 4)),
        ("144, SAW_EGR Nonfatal XC0 i0 Link 00 (0x00000004 0x00000001)", WARN, "nvlink-errors", None),
        ("150, MSE_WATCHDOG Fatal XC0 i0 Link -1 (0x00000000 0x00000000)", FAIL, "nvlink-errors", (0, 0)),
        ("145, RLW_REMAP Nonfatal XC0 i0 Link 02", WARN, "nvlink-errors", None),
    ],
)
def test_an_nvlink_5_error_is_judged_by_unit_sub_code_and_status(text, verdict, cause, row):
    """Lines of leptonai/gpud's tests and of public reports; the decode table is NVIDIA's. row: sub-code and status."""
    (finding,) = judged(f"{XID}{text}")
    code, unit = int(text[:3]), re.search(r"[A-Z]+_[A-Z0-9_]+", text)[0]
    known = nvlink5(code, unit, *row) if row else xids()[code]

    assert (finding.verdict, finding.cause) == (verdict, cause)
    assert [step.text for step in finding.steps] == [step.text for step in known.steps]


@pytest.mark.parametrize(
    ("line", "subject"),
    [
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 95, pid=7194, Uncontained", "gpu:0000:3b:00.0"),
        ("NVRM: Xid (PCI:0000:3b:00 GPU-I:01 GPU-CI:02): 95, pid=9, name=a", "gpu:0000:3b:00.0"),
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
