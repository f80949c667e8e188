"""What five tools measure on boards of fifteen models, healthy or slowed down to a part of the published rate.

The rates are what public results show for healthy machines; they are stated here again and share nothing with
gpucheck/knowledge. That the tables of these tools are read is held by the corpus of pastes. Sources:
NVIDIA/nccl-tests#74, #149, #212, DistServe#3, cuda-samples#230, #392, nvbandwidth README, stas00/ml-engineering,
voipmonitor/rtx6kpro, Puget Systems, lambda and club-3090 write-ups.
"""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from gpucheck.model.diagnosis.observations import (
    Collective,
    HostDevice,
    Matrix,
    Measured,
    Method,
    Observations,
    ObservedGpu,
)


class Board(NamedTuple):
    """GPUs of one host. peer, ring, host: GB/s of a healthy copy, of all_reduce of 8 GiB, and from host memory."""

    model: str
    gpus: int
    cell: str
    peer: float
    ring: float
    host: float


BOARDS = (
    Board("Tesla P100-PCIE-16GB", 2, "PIX", 13.2, 9.6, 12.3),
    Board("Tesla V100-PCIE-32GB", 4, "PIX", 13.1, 9.5, 12.3),
    Board("Tesla V100-SXM3-32GB", 16, "NV6", 142.0, 118.0, 12.3),
    Board("Tesla T4", 4, "PHB", 12.6, 9.4, 12.2),
    Board("NVIDIA A10", 2, "PIX", 26.3, 20.0, 25.4),
    Board("NVIDIA A100 80GB PCIe", 2, "PIX", 26.2, 20.6, 25.3),
    Board("NVIDIA A100-SXM4-80GB", 8, "NV12", 276.0, 230.0, 25.0),
    Board("NVIDIA RTX A6000", 4, "PIX", 26.3, 20.3, 25.3),
    Board("NVIDIA L40S", 8, "PIX", 26.6, 20.5, 25.6),
    Board("NVIDIA L4", 4, "PIX", 26.3, 20.1, 25.4),
    Board("NVIDIA RTX 6000 Ada Generation", 2, "PIX", 26.4, 20.4, 25.5),
    Board("NVIDIA H100 PCIe", 2, "PIX", 53.8, 40.0, 54.0),
    Board("NVIDIA H100 80GB HBM3", 8, "NV18", 390.0, 478.0, 55.2),
    Board("NVIDIA H200", 8, "NV18", 392.0, 480.0, 55.3),
    Board("NVIDIA RTX PRO 6000 Blackwell Server Edition", 8, "PIX", 54.6, 41.0, 55.5),
)
DEPTHS = (0.125, 0.25, 0.5, 0.62)


def _grid(board: Board, part: float) -> Matrix:
    """Cells differ by up to one per cent, as those of a run do."""
    columns, rate = range(board.gpus), part * board.peer
    return tuple(
        tuple(None if i == j else round(rate * (1 - ((3 * i + 5 * j) % 7) / 700), 2) for j in columns) for i in columns
    )


def nvbandwidth(board: Board, part: float) -> Measured:
    return Measured(p2p_uni_gb_s=_grid(board, part), method=Method(engine="ce", direction="read"))


def p2p_bandwidth_latency(board: Board, part: float) -> Measured:
    return Measured(p2p_uni_gb_s=_grid(board, part), method=Method(direction="write"))


def simple_p2p(board: Board, part: float) -> Measured:
    """The first pair."""
    pairs, columns, rate = ((0, 1), (1, 0)), range(board.gpus), round(part * board.peer, 2)
    matrix = tuple(tuple(rate if (i, j) in pairs else None for j in columns) for i in columns)
    return Measured(
        p2p_uni_gb_s=matrix, method=Method(engine="ce"), integrity_bad_pairs=() if board.gpus == 2 else None
    )


def nccl_tests(board: Board, part: float) -> Measured:
    rate = round(part * board.ring, 2)
    row = Collective(op="all_reduce", ranks=board.gpus, bytes=1 << 33, busbw_gb_s=rate, wrong=0)
    return Measured(collectives=(row,))


def bandwidth_test(board: Board, part: float) -> Measured:
    rate = round(part * board.host, 1)
    return Measured(host_device=(HostDevice(gpu=0, h2d_gb_s=rate, d2h_gb_s=rate),), method=Method(engine="ce"))


TOOLS = {
    "nvbandwidth": nvbandwidth,
    "p2p-bandwidth-latency-test": p2p_bandwidth_latency,
    "simple-p2p": simple_p2p,
    "nccl-tests": nccl_tests,
    "bandwidth-test": bandwidth_test,
}
WITHOUT_ACCESS = ("nccl-tests", "bandwidth-test")


def seen(board: Board, tool: str, part: float, *, topology: bool) -> Observations:
    """topology: as nvidia-smi topo -m prints it: every pair alike, one NUMA node."""
    columns = range(board.gpus)
    access = tuple(tuple(None if i == j else True for j in columns) for i in columns)
    matrix = tuple(tuple(None if i == j else board.cell for j in columns) for i in columns)
    every = tool != "bandwidth-test"  # it names the GPU that it measured, and no other
    found = Observations(
        gpus=tuple(ObservedGpu(model=board.model if every or i == 0 else None) for i in columns),
        p2p_access=None if tool in WITHOUT_ACCESS else access,
        measured=TOOLS[tool](board, part),
    )
    if not topology:
        return found if every else replace(found, gpus=found.gpus[:1])
    return replace(found, matrix=matrix, gpus=tuple(replace(gpu, numa_node=0) for gpu in found.gpus))


def measurements(parts: tuple[float, ...]) -> Iterator[tuple[str, Observations]]:
    """Yield name and result of each tool on each board at each part of its rate, with and without topology."""
    for board in BOARDS:
        for tool in TOOLS:
            for part in parts:
                for topology in (False, True):
                    name = f"{board.model}, {tool}, {part:g}{', topo' if topology else ''}"
                    yield name, seen(board, tool, part, topology=topology)
