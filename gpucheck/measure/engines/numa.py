"""Host memory near a GPU: pages are on the NUMA node of the CPU that touches them first."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NODES = Path("/sys/devices/system/node")


def cpus_of(node: int, nodes: Path = NODES) -> set[int]:
    """Return the CPUs of a NUMA node; empty if the kernel does not list them. The format is ``0-31,64-95``."""
    try:
        text = (nodes / f"node{node}" / "cpulist").read_text().strip()
    except OSError:
        return set()
    spans = [part.partition("-") for part in text.split(",") if part]
    return {cpu for first, _, last in spans for cpu in range(int(first), int(last or first) + 1)}


def nodes(folder: Path = NODES) -> tuple[int, ...]:
    """Return the NUMA nodes with CPUs that this process may use."""
    found = sorted(int(node.name[4:]) for node in folder.glob("node*") if node.name[4:].isdigit())
    return tuple(node for node in found if cpus_of(node, folder) & os.sched_getaffinity(0))


@contextmanager
def on_node(node: int | None, nodes: Path = NODES) -> Iterator[None]:
    """Run on the CPUs of this node, if this process may use them; on any CPU if that is unknown."""
    allowed = os.sched_getaffinity(0)
    near = cpus_of(node, nodes) & allowed if node is not None else set()
    if not near:
        yield
        return
    os.sched_setaffinity(0, near)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
