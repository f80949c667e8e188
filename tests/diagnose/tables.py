"""Printed tables of five tools for boards of fifteen models, healthy or slowed down to a part of the published rate.

The rates are what public results show for healthy machines; they are stated here again and share nothing with
gpucheck/knowledge. Sources: NVIDIA/nccl-tests#74, #149, #212, DistServe#3, cuda-samples#230, #392, nvbandwidth README,
stas00/ml-engineering, voipmonitor/rtx6kpro, Puget Systems, lambda and club-3090 write-ups.
"""

from collections.abc import Iterator
from typing import NamedTuple


class Board(NamedTuple):
    """GPUs of one host. peer, ring, host: GB/s of a healthy copy, of all_reduce of 8 GiB, and from host memory."""

    model: str
    count: int
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


def _grid(board: Board, rate: float, diagonal: str = "N/A") -> str:
    """Cells differ by up to one per cent, as those of a run do."""
    columns = range(board.count)
    rows = ["  ".join(f"{j:8d}" for j in columns)]
    for i in columns:
        cells = [diagonal if i == j else f"{rate * (1 - ((3 * i + 5 * j) % 7) / 700):.2f}" for j in columns]
        rows.append(f"{i:2d}  " + "  ".join(f"{cell:>8}" for cell in cells))
    return "\n".join(rows)


def nvbandwidth(board: Board, part: float) -> str:
    devices = "\n".join(f"Device {i}: {board.model} (00000000:{16 + i:02x}:00)" for i in range(board.count))
    return f"""nvbandwidth Version: v0.8
Built from Git version: v0.8

{devices}

Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
  {_grid(board, part * board.peer)}

SUM device_to_device_memcpy_read_ce {part * board.peer * board.count * (board.count - 1):.2f}
"""


def p2p_bandwidth_latency(board: Board, part: float) -> str:
    devices = "\n".join(
        f"Device: {i}, {board.model}, pciBusID: {16 + i:x}, pciDeviceID: 0, pciDomainID:0" for i in range(board.count)
    )
    access = "\n".join(
        f"Device={i} CAN Access Peer Device={j}" for i in range(board.count) for j in range(board.count) if i != j
    )
    own = "900.00"
    return f"""[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]
{devices}
{access}

Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)
   D\\D{_grid(board, part * board.peer, own)}
"""


def simple_p2p(board: Board, part: float) -> str:
    names = f"{board.model} (GPU0) -> {board.model} (GPU1)", f"{board.model} (GPU1) -> {board.model} (GPU0)"
    access = "\n".join(f"> Peer access from {name} : Yes" for name in names)
    return f"""[./simpleP2P] - Starting...
Checking for multiple GPUs...
CUDA-capable device count: {board.count}

Checking GPU(s) for support of peer to peer memory access...
{access}
Enabling peer access between GPU0 and GPU1...
Allocating buffers (64MB on GPU0, GPU1 and CPU Host)...
Creating event handles...
cudaMemcpyPeer / cudaMemcpy between GPU0 and GPU1: {part * board.peer / 1.0737:.2f}GB/s
Preparing host buffer and memcpy to GPU0...
Run kernel on GPU1, taking source data from GPU0 and writing to GPU1...
Run kernel on GPU0, taking source data from GPU1 and writing to GPU0...
Copy data back to host from GPU0 and verify results...
Disabling peer access...
Shutting down...
Test passed
"""


def nccl_tests(board: Board, part: float) -> str:
    busbw = part * board.ring
    algbw = busbw * board.count / (2 * (board.count - 1))
    ranks = "\n".join(
        f"#  Rank {i:2d} Group  0 Pid  28307 on     node07 device {i:2d} [0x{16 + i:02x}] {board.model}"
        for i in range(board.count)
    )
    time = 8589934592 / algbw / 1e3
    return f"""# nThread 1 nGpus {board.count} minBytes 8589934592 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
{ranks}
#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       
  8589934592    2147483648     float     sum      -1   {time:.0f}   {algbw:.2f}   {busbw:.2f}      0   {time:.0f}   {algbw:.2f}   {busbw:.2f}      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : {busbw:.4f}
#
# Collective test concluded: all_reduce_perf
"""  # noqa: E501, W291 - as the tool prints it


def bandwidth_test(board: Board, part: float) -> str:
    ways = "\n\n\n".join(
        f""" {way} Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes)        Bandwidth(GB/s)
   32000000                     {part * board.host:.1f}"""
        for way in ("Host to Device", "Device to Host")
    )
    return f"""[CUDA Bandwidth Test] - Starting...
Running on...

 Device 0: {board.model}
 Quick Mode

{ways}

Result = PASS
"""


TOOLS = {
    "nvbandwidth": nvbandwidth,
    "p2p-bandwidth-latency-test": p2p_bandwidth_latency,
    "simple-p2p": simple_p2p,
    "nccl-tests": nccl_tests,
    "bandwidth-test": bandwidth_test,
}


def topo(board: Board) -> str:
    """``nvidia-smi topo -m`` of the board: every pair alike, one NUMA node."""
    names = [f"GPU{i}" for i in range(board.count)]
    header = "\t".join(["", *names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])
    rows = [
        "\t".join([name, *("X" if i == j else board.cell for j in range(board.count)), "0-63", "0", "N/A"])
        for i, name in enumerate(names)
    ]
    return "\n".join([header, *rows, "", "Legend:", "", "  X    = Self", ""])


def pastes(parts: tuple[float, ...]) -> Iterator[tuple[str, str]]:
    """Name and text of every tool's table on every board at each part of its healthy rate, with and without topology."""
    for board in BOARDS:
        for tool, text in TOOLS.items():
            for part in parts:
                for context in ("", topo(board)):
                    name = f"{board.model}, {tool}, {part:g}{', topo' if context else ''}"
                    yield name, context + "\n" + text(board, part)
