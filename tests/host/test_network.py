"""RDMA devices from sysfs: files as drivers write them, and files as no driver should."""

import errno
import fcntl
import os
import struct
from pathlib import Path

import pytest

from gpucheck.host import network
from gpucheck.host.network import _statistics, read_counters, read_rdma
from gpucheck.model.host.network import RdmaDevice, RdmaPort

NDR = {
    "node_type": "1: CA",
    "hca_type": "MT4129",
    "board_id": "MT_0000000838",
    "fw_ver": "28.39.2048",
    "ports/1/state": "4: ACTIVE",
    "ports/1/phys_state": "5: LinkUp",
    "ports/1/rate": "400 Gb/sec (4X NDR)",
    "ports/1/link_layer": "InfiniBand",
    "ports/1/lid": "0x1a",
    "ports/1/pkeys/0": "0x7fff",
    "ports/1/pkeys/1": "0x0000",
    "ports/1/pkeys/2": "0x8002",
    "ports/1/counters/symbol_error": "7",
    "ports/1/counters/link_downed": "255",
    "ports/1/counters/port_rcv_data": "9",
    "ports/1/hw_counters/local_ack_timeout_err": "3",
}
LINK_LOCAL, EMPTY, ROUTED = "fe80:" + "0000:" * 6 + "0001", "0000:" * 7 + "0000", "0000:" * 5 + "ffff:0a00:0001"
ROCE = NDR | {
    "ports/1/link_layer": "Ethernet",
    "ports/1/lid": "0x0",
    "device/net/eth0/mtu": "4220",
    **{f"ports/1/gids/{n}": gid for n, gid in enumerate((LINK_LOCAL, ROUTED, EMPTY, ROUTED))},
    **{f"ports/1/gid_attrs/types/{n}": kind for n, kind in ((0, "RoCE v2"), (1, "IB/RoCE v1"), (3, "RoCE v2"))},
}
EFA = {
    "node_type": "7: unspecified",
    "fw_ver": "0.0.0.0",  # noqa: S104 - no address
    "ports/1/state": "4: ACTIVE",
    "ports/1/phys_state": "5: LinkUp",
    "ports/1/rate": "100 Gb/sec (4X EDR)",
    "ports/1/link_layer": "Unknown",
    "ports/1/lid": "0x0",
}
# Soft-RoCE of Linux 6.1 whose cable is unplugged, as tests/network has it.
RXE = {
    "node_type": "1: CA",
    "fw_ver": "",
    "ports/1/state": "1: DOWN",
    "ports/1/phys_state": "2: Polling",
    "ports/1/rate": "10 Gb/sec (1X FDR10)",
    "ports/1/link_layer": "Ethernet",
    "ports/1/lid": "0x0",
}


@pytest.fixture
def tree(tmp_path):
    """A device of these files below sys/class/infiniband."""

    def write(name, files):
        for path, text in files.items():
            file = tmp_path / "sys/class/infiniband" / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text if isinstance(text, bytes) else f"{text}\n".encode())
        return tmp_path

    return write


def test_the_device_file_of_a_card_is_found_by_its_name(tree):
    root = tree("mlx5_0", NDR)
    for name in ("mlx5_1", "mlx5_2"):
        tree(name, NDR)
    for file, device in (("uverbs4", "mlx5_0"), ("uverbs1", "mlx5_1"), ("abi_version", "mlx5_2")):
        folder = root / "sys/class/infiniband_verbs" / file
        folder.mkdir(parents=True)
        (folder / "ibdev").write_text(f"{device}\n")
    (root / "dev/infiniband").mkdir(parents=True)
    (root / "dev/infiniband/uverbs4").touch()

    found = [(device.name, device.verbs, device.verbs_error) for device in read_rdma(root)]

    assert found == [("mlx5_0", "uverbs4", None), ("mlx5_1", "uverbs1", "ENOENT"), ("mlx5_2", None, None)]


V4 = (
    "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n{}\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\n"
)
V6 = "{zeros} 00 {zeros} 00 {zeros} 00000400 00000001 00000000 00000003 {{}}\n".format(zeros="0" * 32)


@pytest.mark.parametrize(
    ("routes", "managed"),
    [
        ({"route": V4.format("eth0")}, True),
        ({"route": V4.format("bond0.7")}, True),
        ({"ipv6_route": V6.format("bond0")}, True),
        ({"ipv6_route": V6.format("lo")}, False),
        ({"route": V4.format("eth1")}, False),
        ({"route": "no table\n\n"}, False),
        ({}, False),
    ],
)
def test_the_default_route_is_found_below_bonds_and_vlans(tree, routes, managed):
    """The folders name each other in a circle, as those of no kernel do."""
    root = tree("mlx5_0", ROCE)
    for path in ("eth0/upper_bond0", "bond0/upper_bond0.7", "bond0.7/upper_eth0", "eth0/bonding_slave"):
        (root / "sys/class/net" / path).mkdir(parents=True)
    (root / "sys/class/net/eth0/master").symlink_to("../bond0")
    (root / "proc/net").mkdir(parents=True)
    for name, text in routes.items():
        (root / "proc/net" / name).write_text(text)

    (device,) = read_rdma(root)

    assert (device.route, device.bond) == (managed, "bond0")


def test_files_of_three_drivers(tree):
    tree("mlx5_0", NDR)
    tree("rdmap16s27", EFA)

    efa, mlx5, rxe = sorted(read_rdma(tree("rxe0", RXE)), key=lambda device: device.name != "rdmap16s27")

    assert mlx5 == RdmaDevice(
        name="mlx5_0",
        kind="ca",
        board="MT_0000000838",
        model="MT4129",
        firmware="28.39.2048",
        ports=(
            RdmaPort(
                number=1,
                state="active",
                physical="linkup",
                rate_gbit_s=400.0,
                link_layer="infiniband",
                lid=0x1A,
                pkeys=(0x7FFF, 0x8002),
            ),
        ),
    )
    assert (efa.kind, efa.board, efa.ports[0].link_layer, efa.ports[0].rate_gbit_s) == (
        "unspecified",
        None,
        "unknown",
        100,
    )
    assert (rxe.firmware, rxe.ports[0].state, rxe.ports[0].physical) == (None, "down", "polling")


def test_no_rdma_is_no_device(tmp_path):
    assert read_rdma(tmp_path) == ()


@pytest.mark.parametrize(
    ("file", "content", "field"),
    [
        ("state", b"", "state"),
        ("state", b"ACTIVE", "state"),
        ("state", b"\x00\xff\x1b[2J", "state"),
        ("phys_state", b"9: \x1b]0;x\x07", "physical"),
        ("rate", b"Gb/sec", "rate_gbit_s"),
        ("rate", b"nan Gb/sec (4X NDR)", "rate_gbit_s"),
        ("rate", b"-400 Gb/sec", "rate_gbit_s"),
        ("rate", b"9" * 400 + b" Gb/sec", "rate_gbit_s"),
        ("lid", b"26", "lid"),
        ("lid", b"0x" + b"f" * 400, "lid"),
        ("link_layer", b"\xff\xfe", "link_layer"),
    ],
)
def test_a_file_that_no_driver_writes_is_not_reported(tree, file, content, field):
    (device,) = read_rdma(tree("mlx5_0", NDR | {f"ports/1/{file}": content}))

    assert getattr(device.ports[0], field) is None


def test_a_device_that_leaves_while_it_is_read_is_named(tree):
    """Its folder is still there, and the port's is not."""
    (device,) = read_rdma(tree("mlx5_0", {"node_type": "1: CA"}))

    assert device.unread == "it has no port that could be read"


def test_a_pipe_and_a_loop_cost_nothing(tree):
    root = tree("mlx5_0", {key: text for key, text in NDR.items() if not key.endswith(("/state", "/rate"))})
    port = root / "sys/class/infiniband/mlx5_0/ports/1"
    os.mkfifo(port / "state")
    (port / "rate").symlink_to(port / "rate")

    (device,) = read_rdma(root)

    assert (device.ports[0].state, device.ports[0].rate_gbit_s, device.ports[0].lid) == (None, None, 0x1A)


def test_a_device_that_hangs_costs_its_own_answer(tree, monkeypatch):
    from threading import Event

    from gpucheck.host import network

    never = Event()
    monkeypatch.setattr(network, "DEVICE_S", 0.05)
    real = network._port
    monkeypatch.setattr(
        network, "_port", lambda number, folder: never.wait(60) if "mlx5_1" in str(folder) else real(number, folder)
    )
    for n in range(3):
        root = tree(f"mlx5_{n}", NDR)

    states = [device.unread for device in read_rdma(root)]

    never.set()
    assert states == [None, "no answer within 0.05 s", None]


def test_addresses_of_an_ethernet_port(tree):
    (port,) = read_rdma(tree("mlx5_0", ROCE))[0].ports

    assert (port.gids, port.mtu, port.pkeys) == ((3,), 4220, None)


def attribute(kind, content):
    return struct.pack("HH", 4 + len(content), kind) + content.ljust((len(content) + 3) & ~3, b"\0")


def reporter(place, name, state, bus=b"pci\0"):
    """An answer of the kernel, as linux/devlink.h has it."""
    own = attribute(115, name) + attribute(116, bytes([state])) + attribute(117, bytes(8))
    content = attribute(1, bus) + attribute(2, place) + attribute(0x8000 | 114, own)
    return struct.pack("IHHIIBBH", 20 + len(content), 30, 2, 1, 0, 52, 1, 0) + content


DONE = struct.pack("IHHIIi", 20, 3, 2, 1, 0, 0)
CARD, OTHER = b"0000:3b:00.0\0", b"0000:5e:00.0\0"
ANSWERS = {
    "states": (
        reporter(CARD, b"fw\0", 0) + reporter(CARD, b"tx\0", 1),
        # Two ports of one card; another bus.
        reporter(CARD, b"tx\0", 0) + reporter(OTHER, b"fw\0", 9) + reporter(b"s1\0", b"x\0", 1, b"netdevsim\0") + DONE,
    ),
    "cut": (reporter(CARD, b"fw\0", 0)[:50], DONE),
    "empty": (DONE,),
}


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ("states", {"0000:3b:00.0": {"fw": "healthy", "tx": "error"}, "0000:5e:00.0": {"fw": "state 9"}}),
        ("cut", {}),
        ("empty", {}),
    ],
)
def test_reporters_of_devlink_are_asked_of_the_kernel(monkeypatch, answers, expected):
    family = attribute(1, struct.pack("H", 30)) + attribute(2, b"devlink\0")
    first = struct.pack("IHHIIBBH", 20 + len(family), 16, 0, 1, 0, 1, 2, 0) + family
    left = [first, *ANSWERS[answers]]

    class Door(network.socket.socket):
        def send(self, content):
            return len(content)

        def recv(self, size):
            return left.pop(0)

    monkeypatch.setattr(network.socket, "socket", Door)

    assert network.read_reporters() == expected


@pytest.mark.parametrize(
    ("number", "expected"), [(errno.ENOENT, {}), (errno.EIO, {"": {"devlink": "[Errno 5] Input/output error"}})]
)
def test_a_kernel_without_devlink_has_no_reporters(monkeypatch, number, expected):
    def fails():
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(network, "read_reporters", fails)

    assert network._reporters(Path("/")) == expected


def counters(root, **changes):
    return read_counters(root, read_rdma(root), **changes)


def test_only_counters_that_are_evidence_are_read(tree):
    (one,) = counters(tree("mlx5_0", NDR))

    assert (one.port, one.values) == (
        "mlx5_0/1",
        {"symbol_error": 7, "link_downed": 255, "local_ack_timeout_err": 3},
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"N/A (no PMA)\n", None),
        (b"", "symbol_error is not a number"),
        (b"-1", "symbol_error is not a number"),
        (b"nan", "symbol_error is not a number"),
        (b"\x1b[2J\xff", "symbol_error is not a number"),
        (b"9" * 400, "symbol_error is not a number"),
    ],
)
def test_a_counter_that_is_no_number(tree, content, reason):
    found = counters(tree("mlx5_0", NDR | {"ports/1/counters/symbol_error": content}))

    assert [one.unread for one in found] == [reason]


@pytest.mark.parametrize("kind", ["folder", "pipe", "dangling"])
def test_a_counter_that_is_no_file_costs_its_port_alone(tree, kind):
    root = tree("mlx5_1", NDR)
    root = tree("mlx5_0", {name: text for name, text in NDR.items() if not name.endswith("symbol_error")})
    odd = root / "sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error"
    {"folder": odd.mkdir, "pipe": lambda: os.mkfifo(odd), "dangling": lambda: odd.symlink_to("nowhere")}[kind]()

    first, second = counters(root)

    assert first.unread == {"folder": "Is a directory", "pipe": "symbol_error is not a number", "dangling": None}[kind]
    assert second.values["symbol_error"] == 7


def test_functions_of_firmware_and_ports_that_are_down_are_not_asked(tree):
    """Each read of such a function adds an error to the kernel log."""
    tree("mlx5_0", NDR)
    tree("mlx5_1", NDR | {"device/net/ib0/mtu": "2044", "ports/1/state": "1: DOWN"})
    tree("mlx5_2", NDR | {"device/net/ib1/mtu": "2044", "device/physfn/vendor": "0x15b3"})

    assert [one.port for one in counters(tree("mlx5_3", NDR | {"device/net/ib2/mtu": "2044"}))] == ["mlx5_3/1"]


def test_infiniband_without_ipoib_is_asked_beside_a_card_with_an_interface(tree):
    tree("mlx5_0", NDR)

    assert [one.port for one in counters(tree("mlx5_1", ROCE))] == ["mlx5_0/1", "mlx5_1/1"]


def test_statistics_of_an_interface_are_asked_of_the_kernel(monkeypatch):
    """Of 2000 names those are kept that are evidence. The kernel writes behind the request's pointer."""
    import ctypes

    names = [f"rx{n}_xdp_drop" for n in range(1999)] + ["rx_pcs_symbol_err_phy"]

    def kernel(door, request, argument):
        interface, address = struct.unpack("16sP16x", argument)
        assert (request, interface.rstrip(b"\0")) == (0x8946, b"eth0")
        (question,) = struct.unpack("I", ctypes.string_at(address, 4))
        answer = {
            0x37: (16, struct.pack("I", len(names))),
            0x1B: (12, b"".join(name.encode().ljust(32, b"\0") for name in names)),
            0x1D: (8, struct.pack("2000Q", *range(2000))),
        }[question]
        ctypes.memmove(address + answer[0], answer[1], len(answer[1]))

    monkeypatch.setattr(fcntl, "ioctl", kernel)

    assert dict(_statistics("eth0")) == {"rx_pcs_symbol_err_phy": 1999}
