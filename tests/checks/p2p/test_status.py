"""Peer access: missing by design, or by a fault."""

import msgspec
import pytest

from gpucheck.checks.p2p import status as p2p_status
from tests.checks.gpu.hosts import ALL_OK, REFUSED, geforce
from tests.checks.judging import FAIL, PASS, SKIP, UNKNOWN, judge, with_health
from tests.fakes import SYSTEM, facts
from tests.machines import h100, p100, reading


@pytest.mark.parametrize(
    ("gpus", "virtual", "verdict", "cause"),
    [
        ((with_health(p100(0)), with_health(p100(1))), None, FAIL, "p2p-unsupported-pair"),
        ((with_health(p100(0)), with_health(p100(1))), "kvm", SKIP, "vm-no-p2p"),
        ((geforce(0), geforce(1)), None, SKIP, "geforce-p2p-disabled"),
        ((with_health(p100(0)), geforce(1)), None, SKIP, "p2p-unsupported-pair"),
        ((with_health(p100(0), mig=True), with_health(p100(1))), None, SKIP, "mig-enabled"),
    ],
)
def test_missing_peer_access_is_a_fault_only_where_it_is_not_by_design(gpus, virtual, verdict, cause):
    """GeForce, unequal models, virtual machines and MIG have none."""
    told = msgspec.structs.replace(reading(*gpus), p2p={"read": REFUSED, "write": REFUSED})
    here = facts(nvml=told, system=msgspec.structs.replace(SYSTEM, virtual=virtual))

    (finding,) = judge(p2p_status, here)

    assert (finding.verdict, finding.cause) == (verdict, cause)


def test_links_that_are_up_and_not_used_fail():
    """Ports of an NVSwitch board are up although the fabric was never set up."""
    gpus = (with_health(h100(0)), with_health(h100(1)))
    told = msgspec.structs.replace(reading(*gpus), p2p={"read": ALL_OK, "write": ALL_OK, "nvlink": REFUSED})

    found = judge(p2p_status, facts(nvml=told))

    assert [(f.verdict, f.cause) for f in found] == [(PASS, None), (FAIL, "fabric-manager-down")]


def test_peer_access_that_was_not_told_is_unknown():
    """Zero evidence."""
    told = msgspec.structs.replace(reading(p100(0), p100(1)), p2p={})

    (finding,) = judge(p2p_status, facts(nvml=told))

    assert finding.verdict is UNKNOWN
