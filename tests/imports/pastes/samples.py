"""Six pastes of different kinds, and everything that stands around a paste in an issue, a log or a terminal."""

import re
from collections.abc import Callable
from functools import cache

from tests.imports.pastes.reading import BANDWIDTH

KERNEL = """[   12.345678] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15
[  400.000001] pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0
[  401.123456] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.
[  401.223456] NVRM: GPU at PCI:0000:3b:00: GPU-00000000-0000-0000-0000-000000000000
"""
P2P_SAMPLE = """[./simpleP2P] - Starting...
Checking for multiple GPUs...
CUDA-capable device count: 2
> Peer access from NVIDIA GeForce RTX 4090 (GPU0) -> NVIDIA GeForce RTX 4090 (GPU1) : Yes
> Peer access from NVIDIA GeForce RTX 4090 (GPU1) -> NVIDIA GeForce RTX 4090 (GPU0) : Yes
cudaMemcpyPeer / cudaMemcpy between GPU0 and GPU1: 10.39GB/s
Verification error @ element 1: val = nan, ref = 4.000000
Test failed!
"""


@cache
def samples() -> dict[str, str]:
    """Kind -> what a tool of it printed."""
    return {
        "nvidia-smi-topo": MATRIX,
        "p2p-bandwidth-latency-test": BANDWIDTH["p2p-bandwidth-latency.txt"],
        "nvbandwidth": BANDWIDTH["nvbandwidth.txt"],
        "nccl-tests": _without_nccl_s_log(BANDWIDTH["nccl-tests.txt"]),
        "kernel-log": KERNEL,
        "simple-p2p": P2P_SAMPLE,
    }


MATRIX = """\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV4\tPHB\tSYS\t0-7\t0
GPU1\tNV4\t X \tPHB\tSYS\t0-7\t0
GPU2\tPHB\tPHB\t X \tNV4\t0-7\t0
GPU3\tSYS\tSYS\tNV4\t X \t8-15\t1
"""


def _without_nccl_s_log(text: str) -> str:
    return "".join(f"{line}\n" for line in text.splitlines() if "NCCL INFO" not in line)


def _each(before: str) -> Callable[[str], str]:
    return lambda text: "".join(f"{before}{line}\n" for line in text.splitlines())


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def _coloured(text: str) -> str:
    return "".join(f"\x1b[1;32m{line}\x1b[0m\x1b[K\n" for line in text.splitlines())


WRAPPERS: dict[str, Callable[[str], str]] = {
    "as-it-is": lambda text: text,
    "prompt": lambda text: f"root@node07:~# ./tool --all\n{text}root@node07:~# \n",
    "dollar": lambda text: f"$ ./tool 2>&1 | tee out.txt\n{text}$\n",
    "powershell": lambda text: f"PS C:\\Users\\me> .\\tool.exe\n{text}",
    "fence": lambda text: f"```\n{text}```\n",
    "fence-with-language": lambda text: f"```console\n{text}\n```\n",
    "tildes": lambda text: f"~~~\n{text}~~~\n",
    "details": lambda text: f"<details>\n<summary></summary>\n<pre><code>\n{text}</code></pre>\n</details>\n",
    "quote": _each("> "),
    "double-quote": _each("> > "),
    "entities": _html,
    "colours": _coloured,
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "indented": _each("    "),
    "kubectl": _each("[pod/trainer-0/main] "),
    "docker-compose": _each("trainer-1  | "),
    "mpirun": _each("[1,0]<stdout>:"),
    "mpirun-5": _each("[prterun-node07-4242@1,0]<stdout>: "),
    "srun": _each("0: "),
    "ray": _each("(Worker pid=4242, ip=10.0.0.1) "),
    "torchrun": _each("[rank0]: "),
    "journald": _each("Nov 22 10:00:00 node07 trainer[12]: "),
    "journald-iso": _each("2026-11-22T10:00:00+0000 node07 trainer[12]: "),
    "github-actions": _each("2026-11-22T10:00:00.1234567Z "),
    "gitlab": _each("2026-11-22T10:00:00.123456Z 01O "),
    "jenkins": _each("[2026-11-22T10:00:00.123Z] "),
    "container-log": _each("2026-11-22T10:00:00.123456789Z stdout F "),
    "pdsh": _each("node07: "),
}
# What a wrapper takes away or adds that the text itself does not say.
NAMES_A_HOST = {"journald", "journald-iso", "pdsh"}


def table_of(matrix: str) -> str:
    """A matrix of tabs as a Markdown table with bold cells."""
    rows = [[cell.strip() for cell in line.split("\t")] for line in matrix.splitlines()]
    lines = [
        "| " + " | ".join(f"**{cell}**" if re.match(r"GPU|NV", cell) else cell for cell in row) + " |" for row in rows
    ]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:], ""])
