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
from gpucheck.printable import counted

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


HEALTH = "nic-health"


def health(facts: Facts) -> Iterator[Finding]:
    """Health of network cards: does a driver report an error of a card from which it did not recover?

    Source: reporters of devlink (generic netlink, as devlink health show prints them), of drivers that have them, such
    as mlx5: firmware, transmit and receive queues. Their counts of errors are totals since the driver was loaded and
    are not evaluated.
    """
    places = {name: function.bus_id for function in facts.pci for name in function.infiniband_names}
    cards = [device for device in facts.rdma if device.reporters]
    own: list[Finding] = []
    for device in cards:
        subject = Subject(check=HEALTH, name=f"nic:{places.get(device.name, device.name)}")
        subject = subject.with_evidence(*(f"{device.name} reporter {name}: {s}" for name, s in device.reporters))
        wrong = [name for name, state in device.reporters if state == "error"]
        unread = [state for _, state in device.reporters if state not in ("healthy", "error")]
        if wrong:
            seen = f"{', '.join(wrong)} in state error"
            own.append(subject.warns("network.reporter-error", seen, "healthy", device=device.name))
        elif unread:
            own.append(subject.unknown("network.reporter-unread", device=device.name, reason=unread[0]))
    yield from own
    if not cards:
        code = "network.no-reporter" if facts.rdma else "network.no-rdma-device"
        yield Subject(check=HEALTH).skips(code, len(facts.rdma))
    elif not own:
        yield Subject(check=HEALTH).passes(f"{counted(sum(len(one.reporters) for one in cards), 'reporter')} healthy")


CHECK = quick_check(NAME, "hardware network", evaluate, ("rdma", "pci"))
CHECKS = (CHECK, quick_check(HEALTH, "hardware network", health, ("rdma", "pci")))
