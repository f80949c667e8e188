"""Firmware and PCIe settings of network cards: are they the same on equal boards of this host?

Source: fw_ver and board_id of /sys/class/infiniband/<device>, and Max_Read_Request_Size of the PCI Express capability,
which only root can read. Only boards with the same id take the same firmware; without both files, as of EFA and
Soft-RoCE, there is nothing to compare.
"""

from collections import Counter
from collections.abc import Iterator

from gpucheck.checks._nvml import quick_check
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding
from gpucheck.model.facts import Facts
from gpucheck.model.host.network import RdmaDevice

NAME = "nic-firmware"


def evaluate(facts: Facts) -> Iterator[Finding]:
    """A finding for each card that differs from most of its equals, or one for the host."""
    boards: dict[str, list[RdmaDevice]] = {}
    for device in facts.rdma:
        if device.board and device.firmware:
            boards.setdefault(device.board, []).append(device)
    functions = {name: function for function in facts.pci for name in function.infiniband_names}
    requests = {name: f"{f.max_read_request} B" for name, f in functions.items() if f.max_read_request is not None}
    evidence = tuple(
        f"{one.name}: board {board}, firmware {one.firmware}"
        + (f", reads of {requests[one.name]}" if one.name in requests else "")
        for board in boards
        for one in boards[board]
    )
    host = Subject(check=NAME, evidence=evidence)
    compared = {board: devices for board, devices in boards.items() if len(devices) > 1}
    if not compared:
        yield host.skips("network.no-equal-boards" if facts.rdma else "network.no-rdma-device", len(boards))
        return
    places = {name: function.bus_id for name, function in functions.items()}
    own: list[Finding] = []
    for board, devices in compared.items():
        versions = {device.name: str(device.firmware) for device in devices}
        sizes = {device.name: requests[device.name] for device in devices if device.name in requests}
        own += _differing(host, board, versions, places, ("network.firmware-differs", "network.firmware-mixed"))
        own += _differing(host, board, sizes, places, ("network.read-request-differs", "network.read-request-mixed"))
    yield from own or [host.passes(", ".join(f"{board}: {one[0].firmware}" for board, one in compared.items()))]


def _differing(
    host: Subject, board: str, values: dict[str, str], places: dict[str, str], codes: tuple[str, str]
) -> Iterator[Finding]:
    """values: by device. codes: of a device that differs from most, and of devices without a majority."""
    counts = Counter(values.values()).most_common(2)
    if len(counts) < 2:
        return
    (usual, count), (_, second) = counts
    if count == second:
        yield host.warns(codes[1], ", ".join(sorted(set(values.values()))), "one value", board=board)
        return
    for device, value in values.items():
        if value != usual:
            subject = Subject(check=NAME, name=f"nic:{places.get(device, device)}", evidence=host.evidence)
            yield subject.warns(codes[0], value, usual, device=device, board=board, usual=usual)


CHECK = quick_check(NAME, "hardware network", evaluate, ("rdma", "pci"))
