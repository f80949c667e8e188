"""RDMA devices from sysfs: files as drivers write them, and files as no driver should."""

import os

import pytest

from gpucheck.host.network import read_rdma
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
            RdmaPort(number=1, state="active", physical="linkup", rate_gbit_s=400.0, link_layer="infiniband", lid=0x1A),
        ),
    )
    assert (efa.kind, efa.board, efa.ports[0].link_layer, efa.ports[0].rate_gbit_s) == (
        "unspecified",
        None,
        "unknown",
        100,
    )
    assert (rxe.firmware, rxe.ports[0].state, rxe.ports[0].physical) == (None, "down", "polling")


def test_a_virtual_function_has_a_physical_one(tree, tmp_path):
    root = tree("mlx5_4", NDR | {"device/physfn/vendor": "0x15b3"})

    assert read_rdma(root)[0].is_virtual


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
