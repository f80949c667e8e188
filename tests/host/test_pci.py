"""PCI functions from a sysfs tree made by hand: the ends of links, kinds, ACS, IOMMU, AER, BAR 1, network names."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.host.pci import Bridge, Kind, bar1_bytes, read_bridge, read_pci
from gpucheck.model import AcsControl, AerCounts

PORT_TYPES = {"root-port": 4, "switch-upstream": 5, "switch-downstream": 6, "pcie-to-pci": 7}


def bridge(kind=None, acs=None, size=4096, identity=0x000D):
    """A bridge's bytes. kind None: conventional PCI. acs: (capability, control). size: how much the reader may see.

    identity: of the last extended capability, ACS.
    """
    space = bytearray(4096)
    struct.pack_into("<HHHH", space, 0, 0x8086, 0x352A, 0x0406, 0x0010)
    space[0x0E] = 1
    space[0x34] = 0x40
    struct.pack_into("<BB", space, 0x40, 0x01, 0x68 if kind else 0x00)  # power management comes first
    if kind:
        struct.pack_into("<BBH", space, 0x68, 0x10, 0x00, PORT_TYPES[kind] << 4 | 2)
        struct.pack_into("<HH", space, 0x100, 0x0001, 0x148 << 4 | 2)  # AER
        if acs:
            struct.pack_into("<HHHH", space, 0x148, identity, 0x0001, *acs)
    return bytes(space[:size])


ROOT_PORT, UPSTREAM, DOWNSTREAM, GPU = "0000:00:01.0", "0000:01:00.0", "0000:02:00.0", "0000:03:00.0"
CHAIN = (ROOT_PORT, UPSTREAM, DOWNSTREAM, GPU)
KINDS = {ROOT_PORT: "root-port", UPSTREAM: "switch-upstream", DOWNSTREAM: "switch-downstream"}
SPEEDS = {1: "2.5 GT/s PCIe", 3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe"}


def function(root, above, bus_id, class_id="060400", vendor="8086", link=(5, 16, 5, 16), **files):
    """One function below its bridges. link: generation and width now, and at most. files: further ones by name."""
    folder = (root / "sys/devices/pci0000:00").joinpath(*above, bus_id)
    folder.mkdir(parents=True)
    generation, width, most_generation, most_width = link
    words = {
        "vendor": f"0x{vendor}",
        "device": "0x2330",
        "class": f"0x{class_id}",
        "numa_node": "-1",
        "current_link_speed": SPEEDS.get(generation, "Unknown"),
        "current_link_width": str(width),
        "max_link_speed": SPEEDS[most_generation],
        "max_link_width": str(most_width),
    }
    for name, text in words.items():
        (folder / name).write_text(f"{text}\n")
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())
    listed = root / "sys/bus/pci/devices"
    listed.mkdir(parents=True, exist_ok=True)
    (listed / bus_id).symlink_to(folder)
    return folder


def chain(root, *, readable=True, links=()):
    """A GPU below a switch below a root port. links: those that are not Gen5 x16, by bus id."""
    links = dict(links)
    for place, bus_id in enumerate(CHAIN):
        files = {"config": bridge(KINDS[bus_id], size=4096 if readable else 64)} if bus_id in KINDS else {}
        about = {} if bus_id in KINDS else {"class_id": "030200", "vendor": "10de"}
        function(root, CHAIN[:place], bus_id, link=links.get(bus_id, (5, 16, 5, 16)), **about, **files)


def by_bus_id(root):
    return {device.bus_id: device for device in read_pci(root)}


def test_kinds_are_those_of_configuration_space(tmp_path):
    chain(tmp_path)
    seen = by_bus_id(tmp_path)

    assert {bus_id: seen[bus_id].kind for bus_id in CHAIN} == KINDS | {GPU: None}
    assert seen[GPU].path == (ROOT_PORT, UPSTREAM, DOWNSTREAM)
    assert all(seen[bus_id].config_readable for bus_id in KINDS)


def test_virtual_functions_of_a_gpu_are_not_gpus(tmp_path):
    """Where vGPU uses SR-IOV an L40S shows 32 of them, of its class and bound to nvidia (harvester/harvester#6487)."""
    chain(tmp_path)
    virtual = function(tmp_path, CHAIN[:3], "0000:03:00.4", class_id="030200", vendor="10de")
    (virtual / "physfn").symlink_to(f"../{GPU}")

    assert {*by_bus_id(tmp_path)} == {*CHAIN}


def test_without_root_a_bridge_is_a_bridge(tmp_path):
    chain(tmp_path, readable=False)
    seen = by_bus_id(tmp_path)

    assert {seen[bus_id].kind for bus_id in KINDS} == {"bridge"}
    assert not any(device.config_readable for device in seen.values())


@pytest.mark.parametrize("readable", [True, False])
def test_each_link_is_compared_with_its_own_other_end(tmp_path, readable):
    """A wide root port above a narrow switch, a narrow slot below it: no port is measured by what is not its link."""
    narrow = {UPSTREAM: (4, 8, 4, 8), DOWNSTREAM: (3, 4, 4, 4), GPU: (3, 4, 5, 16)}
    chain(tmp_path, readable=readable, links=narrow | {ROOT_PORT: (4, 8, 5, 16)})
    allowed = {bus_id: (d.link.max_generation, d.link.max_width) for bus_id, d in by_bus_id(tmp_path).items()}

    assert allowed == {ROOT_PORT: (4, 8), UPSTREAM: (4, 8), DOWNSTREAM: (4, 4), GPU: (4, 4)}


def test_only_nvidia_bridges_and_network_cards_are_listed(tmp_path):
    function(tmp_path, (), "0000:00:02.0", class_id="010802")
    function(tmp_path, (), "0000:00:03.0", class_id="020700", vendor="15b3")
    function(tmp_path, (), "0000:00:04.0", class_id="040300", vendor="10de")
    function(tmp_path, (), ROOT_PORT)

    assert list(by_bus_id(tmp_path)) == [ROOT_PORT, "0000:00:03.0", "0000:00:04.0"]


def test_names_of_a_network_card(tmp_path):
    folder = function(tmp_path, (), "0000:00:03.0", class_id="020700", vendor="15b3")
    for name in ("net/ibp3s0", "infiniband/mlx5_0"):
        (folder / name).mkdir(parents=True)
    virtual = function(tmp_path, (), "0000:00:04.0", class_id="020000", vendor="1af4")
    (virtual / "virtio1/net/ens4").mkdir(parents=True)
    seen = by_bus_id(tmp_path)

    assert (seen["0000:00:03.0"].net_names, seen["0000:00:03.0"].infiniband_names) == (("ibp3s0",), ("mlx5_0",))
    assert seen["0000:00:04.0"].net_names == ("ens4",)


@pytest.mark.parametrize(
    ("identity", "size", "seen"), [(0x000F, 4096, True), (0x000D, 4096, False), (0x000F, 64, False)]
)
def test_ats_of_a_network_card(tmp_path, identity, size, seen):
    content = bridge("switch-upstream", acs=(0x60, 0x8000), size=size, identity=identity)
    folder = function(tmp_path, (), "0000:01:00.0", class_id="020700", vendor="15b3", config=content)
    (folder / "infiniband/mlx5_0").mkdir(parents=True)

    assert read_pci(tmp_path)[0].translates is seen


def test_iommu_group_and_its_type(tmp_path):
    folder = function(tmp_path, (), GPU, class_id="030200", vendor="10de")
    group = tmp_path / "sys/kernel/iommu_groups/27"
    group.mkdir(parents=True)
    (group / "type").write_text("DMA-FQ\n")
    (folder / "iommu_group").symlink_to(group)

    assert (by_bus_id(tmp_path)[GPU].iommu_group, by_bus_id(tmp_path)[GPU].iommu_type) == ("27", "DMA-FQ")


def test_aer_totals_are_the_kernels_own(tmp_path):
    """TOTAL need not be the sum; a count in another line is not a total."""
    function(
        tmp_path,
        (),
        ROOT_PORT,
        aer_dev_correctable="RxErr 3\nBadTLP 4\nTOTAL_ERR_COR 9",
        aer_dev_nonfatal="Undefined 0\nTOTAL_ERR_NONFATAL 1",
        aer_dev_fatal="Undefined 0\nTOTAL_ERR_FATAL 0",
    )

    assert by_bus_id(tmp_path)[ROOT_PORT].aer == AerCounts(correctable=9, non_fatal=1, fatal=0)


def test_aer_that_the_firmware_owns_is_not_zero(tmp_path):
    function(tmp_path, (), ROOT_PORT, aer_dev_correctable="TOTAL_ERR_COR 0")

    assert by_bus_id(tmp_path)[ROOT_PORT].aer is None


@pytest.mark.parametrize(
    ("resource", "size"),
    [
        (
            "0x00000000b0000000 0x00000000b0ffffff 0x0000000000040200\n"
            "0x0000002000000000 0x0000003fffffffff 0x000000000014220c\n"
            "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
            "0x0000004000000000 0x0000004001ffffff 0x000000000014220c\n",
            128 << 30,
        ),
        # BAR 0 is a 64-bit one: BAR 1 of the GPU is the third register
        (
            "0x00000c4042000000 0x00000c4045ffffff 0x000000000014220c\n"
            "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
            "0x00000c2000000000 0x00000c3fffffffff 0x000000000014220c\n",
            128 << 30,
        ),
        # firmware found no room for BAR 1; BAR 3 after it is something else
        (
            "0x00000000b0000000 0x00000000b0ffffff 0x0000000000040200\n"
            "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
            "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
            "0x0000004000000000 0x0000004001ffffff 0x000000000014220c\n",
            None,
        ),
        ("", None),
        ("nonsense\n", None),
    ],
    ids=["usual", "64-bit BAR 0", "unassigned", "empty", "nonsense"],
)
def test_size_of_bar1(resource, size):
    assert bar1_bytes(resource) == size


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
