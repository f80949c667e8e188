"""Pairs of GPUs: P2P status by place and by direction, missing by design or by a fault, and sources of the topology."""

import pytest
from msgspec.structs import replace

from gpucheck.checks.p2p import status as p2p_status
from gpucheck.model import DEFECT, Confidential, Fabric, NvmlGap
from tests.checks.gpu.hosts import ALL_OK, REFUSED, geforce
from tests.checks.judging import PASS, codes, judge, with_health
from tests.fakes import SYSTEM, facts
from tests.machines import h100, on_bus, p100, reading

KEY = (("X", "DR"), ("DR", "X"))
P100S = (with_health(p100(0)), with_health(p100(1)))


def pairs(*gpus, read=REFUSED, write=None, nvlink=None, gaps=(), virtual=None, **more):
    status = {"read": read, "write": write or read, **({"nvlink": nvlink} if nvlink else {})}
    nvml = replace(reading(*gpus), p2p=status if read else {}, gaps=gaps, **more)
    return facts(nvml=nvml, system=replace(SYSTEM, virtual=virtual))


def bridged(index):
    """One of two H100 NVL: the driver has the fabric call, and no fabric for it."""
    links = tuple(
        replace(link, remote_kind="gpu", remote_bus_id=h100(1 - index).pci_bus_id) for link in h100(index).nvlinks
    )
    gpu = replace(h100(index), name="NVIDIA H100 NVL", device_id="2321", nvlinks=links)
    return with_health(replace(gpu, fabric=Fabric(state="not-supported")))


def one_way(code=None, status=None):
    """One direction of two was refused, or not reported."""
    gap = NvmlGap(call=p2p_status.CALL, subject="pair:0000:04:00.0-0000:03:00.0", code=code or 0, name="NVMLError_X")
    return pairs(*P100S, read=(("X", status or "OK"), (None, "X")), write=ALL_OK, gaps=(gap,) if code else ())


@pytest.mark.parametrize(
    ("host", "found"),
    [
        (pairs(*P100S), ["p2p.gpu-unsupported"]),
        # GeForce, unequal models, virtual machines and MIG have none by design.
        (pairs(*P100S, virtual="kvm"), ["p2p.none-in-vm"]),
        (pairs(geforce(0), geforce(1)), ["p2p.none-on-geforce"]),
        (pairs(P100S[0], geforce(1)), ["p2p.none-between-models"]),
        (pairs(with_health(p100(0), mig=True), P100S[1]), ["p2p.none-with-mig"]),
        # Ports of an NVSwitch board are up although the fabric was never set up.
        (
            pairs(with_health(h100(0)), with_health(h100(1)), read=ALL_OK, nvlink=REFUSED),
            [None, "p2p.fabric-not-set-up"],
        ),
        # As are those of Hopper at bridges, which have no fabric to wait for.
        (pairs(*map(bridged, range(2)), read=ALL_OK, nvlink=REFUSED), [None, "p2p.nvlinks-unused"]),
        (
            pairs(*map(bridged, range(2)), read=ALL_OK, nvlink=REFUSED, confidential=Confidential(enabled=True)),
            [None, "p2p.nvlinks-confidential"],
        ),
        (pairs(*P100S, read=()), ["p2p.status-not-reported"]),
        # One direction proves nothing of the other, and hides no status that is bad.
        (one_way(15), ["p2p.gpu-lost"]),
        (one_way(999), ["p2p.status-failed"]),
        (one_way(DEFECT), ["p2p.status-unreadable"]),
        (one_way(status="DR"), ["p2p.disabled-by-driver"]),
        # A registry key is no design, whatever else may explain that there is no access; but MIG has none at all.
        (pairs(*P100S, read=KEY, virtual="kvm"), ["p2p.disabled-by-driver"]),
        (pairs(P100S[0], geforce(1), read=KEY), ["p2p.disabled-by-driver"]),
        (pairs(with_health(p100(0), mig=True), P100S[1], read=KEY), ["p2p.none-with-mig"]),
    ],
)
def test_status_of_a_pair(host, found):
    assert codes(p2p_status, host) == found


def test_peer_access_is_read_by_place():
    """GPU 1 was lost: the second row is that of GPU 2."""
    rows = (("X", "OK", "OK"), ("OK", "X", "CNS"), ("OK", "CNS", "X"))
    passed, found = judge(p2p_status, pairs(p100(0), p100(2), p100(3), read=rows))

    assert (passed.seen, found.code) == ("OK for 2 pairs", "p2p.chipset-unsupported")
    assert found.subject == "pair:0000:05:00.0-0000:06:00.0"


@pytest.mark.parametrize(
    ("ancestor", "bus", "code"),
    [("PIX", False, "p2p.no-path-in-sysfs"), (None, True, "p2p.no-class-from-nvml")],
)
def test_source_that_was_not_seen_agrees_with_nothing(ancestor, bus, code):
    nvml = reading(*P100S, ancestor=ancestor or "")
    nvml = nvml if ancestor else replace(nvml, ancestors=())

    assert codes("topology", facts(nvml=nvml, pci=on_bus(*P100S) if bus else ())) == [code]


def test_missing_links_and_acs_are_findings_of_their_own_checks():
    """One fault, one finding."""
    gpu = replace(h100(0), nvlinks=tuple(replace(link, active=link.link != 3) for link in h100(0).nvlinks))
    (finding,) = judge("topology", facts(nvml=reading(gpu, h100(1)), pci=on_bus(gpu, h100(1))))

    assert (finding.verdict, finding.seen) == (PASS, "1 x NV17")
