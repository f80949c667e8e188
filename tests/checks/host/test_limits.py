"""Limits of the host: shared memory and locked memory."""

import msgspec
import pytest

from gpucheck.checks.host import locked_memory, shared_memory
from gpucheck.model import Limits, PciDevice
from tests.checks.judging import FAIL, PASS, SKIP, UNKNOWN, WARN, judge
from tests.fakes import SYSTEM, facts
from tests.machines import on_bus, p100

MIB = 1 << 20
NIC = PciDevice(
    bus_id="0000:0a:00.0", vendor_id="15b3", device_id="1021", class_id="020700", infiniband_names=("mlx5_0",)
)


@pytest.mark.parametrize(
    ("size", "free", "verdict"),
    [(64, 64, FAIL), (512, 512, WARN), (16384, 10, WARN), (16384, 16384, PASS), (None, None, UNKNOWN)],
)
def test_shared_memory_must_hold_a_job(size, free, verdict):
    """64 MiB is what a container gets when nobody asks."""
    limits = Limits(shm_bytes=size and size * MIB, shm_free_bytes=free and free * MIB)

    (finding,) = judge(shared_memory, facts(limits=limits))

    assert (finding.verdict, finding.cause) == (verdict, "shm-too-small" if verdict in (FAIL, WARN) else None)


def test_the_remedy_for_shared_memory_is_one_that_the_reader_can_carry_out():
    """Nobody remounts /dev/shm inside a container."""
    small = Limits(shm_bytes=64 * MIB, shm_free_bytes=64 * MIB)
    in_container = msgspec.structs.replace(SYSTEM, container="docker")

    assert judge(shared_memory, facts(limits=small, system=in_container))[0].code == "host.shm-too-small-container"
    assert judge(shared_memory, facts(limits=small))[0].code == "host.shm-too-small"


@pytest.mark.parametrize(
    ("limit", "pci", "verdict"),
    [
        (-1, (NIC,), PASS),
        (64 << 10, (NIC,), WARN),
        (64 << 10, on_bus(p100(0)), SKIP),
        (64 << 10, (), UNKNOWN),
        (None, (NIC,), UNKNOWN),
    ],
)
def test_locked_memory_matters_with_rdma_devices(limit, pci, verdict):
    """CUDA pins through its own driver. Without /sys the RDMA devices are not visible, which is not "none"."""
    (finding,) = judge(locked_memory, facts(limits=Limits(memlock_bytes=limit), pci=pci))

    assert finding.verdict is verdict
    assert verdict is not WARN or finding.seen == "64 KiB"
