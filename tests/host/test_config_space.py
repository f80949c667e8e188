"""Kind of port and ACS from configuration space, also from one that is cut off, dead, or nonsense."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.host.pci import Bridge, Kind, read_bridge
from gpucheck.model import AcsControl
from tests.host.config_bytes import bridge

ACS = AcsControl(capability=0x5F, control=0x1D)
PORTS: tuple[Kind, ...] = ("root-port", "switch-upstream", "switch-downstream")


def read(content):
    return read_bridge(lambda offset, size: content[offset : offset + size])


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        *(
            (bridge(kind, acs=(0x5F, 0x1D)), Bridge(kind, AcsControl(capability=0x5F, control=0x1D), True))
            for kind in PORTS
        ),
        (bridge("switch-upstream"), Bridge("switch-upstream", None, readable=True)),
        # The kernel shows 64 bytes to a user without privileges: neither "no ACS" nor a kind may be read from them.
        (bridge("root-port", acs=(1, 1), size=64), Bridge("bridge", None, readable=False)),
        # A host bridge without memory-mapped configuration shows 256 bytes: ACS stays unknown.
        (bridge("root-port", acs=(1, 1), size=256), Bridge("root-port", None, readable=False)),
        # Conventional PCI cannot have ACS, and a bridge to it is not a port.
        (bridge(None, size=256), Bridge("bridge", None, readable=True)),
        (bridge("pcie-to-pci"), Bridge("bridge", None, readable=True)),
        # A device that left the bus, and an extended space that reads as ones.
        (b"\xff" * 4096, Bridge()),
        (bridge("root-port")[:256] + b"\xff" * 3840, Bridge("root-port", None, readable=True)),
    ],
)
def test_kind_and_acs_of_a_bridge(content, seen):
    assert read(content) == seen


def test_lists_that_run_in_circles_end():
    ordinary, extended = bytearray(bridge("root-port")), bytearray(bridge("root-port", acs=(1, 1)))
    struct.pack_into("<BB", ordinary, 0x40, 0x01, 0x40)
    struct.pack_into("<HH", extended, 0x100, 0x0001, 0x100 << 4 | 2)

    assert read(bytes(ordinary)) == Bridge("bridge", None, readable=True)
    assert read(bytes(extended)) == Bridge("root-port", None, readable=True)


@given(st.binary(max_size=4096))
def test_any_bytes_are_answered(content):
    """Damaged firmware, a dying device: no exception and a bounded number of reads, whatever is there."""
    reads = []

    def counted(offset, size):
        reads.append(offset)
        return content[offset : offset + size]

    assert isinstance(read_bridge(counted), Bridge)
    assert len(reads) < 2 * 48 + 2 * 960 + 16


@given(st.lists(st.integers(0, 4095), min_size=1, max_size=60), st.sampled_from([0x00, 0x10, 0x40, 0xFF]))
def test_a_port_with_flipped_bytes_is_answered(places, value):
    content = bytearray(bridge("switch-downstream", acs=(0x5F, 0x1D)))
    for place in places:
        content[place] = value

    assert isinstance(read(bytes(content)), Bridge)
