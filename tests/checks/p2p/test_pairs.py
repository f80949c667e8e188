"""Pairs of GPUs: P2P status by place and by direction, and the sources of the topology."""

import msgspec
import pytest

from gpucheck.checks.p2p import status as p2p_status
from gpucheck.checks.p2p import topology
from gpucheck.model import DEFECT, NvmlGap
from tests.checks.judging import FAIL, PASS, SKIP, UNKNOWN, WARN, judge
from tests.fakes import facts
from tests.machines import h100, on_bus, p100, reading


def answering(*gpus, read, gaps=()):
    write = tuple(tuple("X" if i == j else "OK" for j in range(len(gpus))) for i in range(len(gpus)))
    return msgspec.structs.replace(reading(*gpus), p2p={"read": read, "write": write}, gaps=gaps)


def test_peer_access_is_read_by_place():
    """GPU 1 was lost: the second row is that of GPU 2."""
    gpus = (p100(0), p100(2), p100(3))
    rows = (("X", "OK", "OK"), ("OK", "X", "CNS"), ("OK", "CNS", "X"))

    found = judge(p2p_status, facts(nvml=answering(*gpus, read=rows)))

    assert [(f.verdict, f.seen) for f in found] == [(PASS, "OK for 2 pairs"), (WARN, "CNS for 1 pair")]
    assert found[1].subject == "pair:0000:05:00.0-0000:06:00.0"


@pytest.mark.parametrize(
    ("code", "because", "found"),
    [
        (15, "inventory", ("p2p.gpu-lost", {"pairs": 1, "number": 15})),
        (999, None, ("p2p.status-failed", {"pairs": 1, "error": "Unknown", "number": 999})),
        (DEFECT, None, ("p2p.status-unreadable", {"pairs": 1, "error": "Unknown"})),
    ],
)
def test_peer_access_of_one_direction_proves_nothing_of_the_other(code, because, found):
    gap = NvmlGap(
        call="nvmlDeviceGetP2PStatus",
        subject="pair:0000:04:00.0-0000:03:00.0",
        code=code,
        name="NVMLError_Unknown",
    )
    nvml = answering(p100(0), p100(1), read=(("X", "OK"), (None, "X")), gaps=(gap,))

    (finding,) = judge(p2p_status, facts(nvml=nvml))

    assert (finding.verdict, finding.because_of) == (UNKNOWN, because)
    assert (finding.code, finding.values) == found


def test_refused_direction_does_not_hide_a_status_that_is_bad():
    nvml = answering(p100(0), p100(1), read=(("X", "DR"), (None, "X")))

    (finding,) = judge(p2p_status, facts(nvml=nvml))

    assert (finding.verdict, finding.seen) == (FAIL, "DR for 1 pair")


@pytest.mark.parametrize(
    ("ancestor", "bus", "code"),
    [("PIX", False, "p2p.no-path-in-sysfs"), (None, True, "p2p.no-class-from-nvml")],
)
def test_source_that_was_not_seen_agrees_with_nothing(ancestor, bus, code):
    gpus = (p100(0), p100(1))
    nvml = reading(*gpus, ancestor=ancestor or "")
    nvml = nvml if ancestor else msgspec.structs.replace(nvml, ancestors=())

    (finding,) = judge(topology, facts(nvml=nvml, pci=on_bus(*gpus) if bus else ()))

    assert (finding.verdict, finding.code) == (SKIP, code)


def test_missing_links_and_acs_are_findings_of_their_own_checks():
    """One fault, one finding."""
    gpu = msgspec.structs.replace(
        h100(0), nvlinks=tuple(msgspec.structs.replace(link, active=link.link != 3) for link in h100(0).nvlinks)
    )

    (finding,) = judge(topology, facts(nvml=reading(gpu, h100(1)), pci=on_bus(gpu, h100(1))))

    assert (finding.verdict, finding.seen) == (PASS, "1 x NV17")
