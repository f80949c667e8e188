"""Firmware of network cards: do equal boards of this host run the same version?

Source: fw_ver and board_id of /sys/class/infiniband/<device>. Only boards with the same id take the same firmware;
without both files, as of EFA and Soft-RoCE, there is nothing to compare.
"""

from collections import Counter
from collections.abc import Iterator

from gpucheck.checks.network._cards import NEEDS
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, Finding
from gpucheck.model.facts import Facts
from gpucheck.model.host.network import RdmaDevice

NAME = "nic-firmware"


def evaluate(facts: Facts) -> Iterator[Finding]:
    """A finding for each card that differs from most of its equals, or one for the host."""
    boards: dict[str, list[RdmaDevice]] = {}
    for device in facts.rdma:
        if device.board and device.firmware:
            boards.setdefault(device.board, []).append(device)
    evidence = tuple(f"{one.name}: board {board}, firmware {one.firmware}" for board in boards for one in boards[board])
    host = Subject(check=NAME, evidence=evidence)
    compared = {board: devices for board, devices in boards.items() if len(devices) > 1}
    if not compared:
        yield host.skips("network.no-equal-boards" if facts.rdma else "network.no-rdma-device", len(boards))
        return
    places = {name: function.bus_id for function in facts.pci for name in function.infiniband_names}
    own = [finding for board, devices in compared.items() for finding in _differing(host, board, devices, places)]
    yield from own or [host.passes(", ".join(f"{board}: {one[0].firmware}" for board, one in compared.items()))]


def _differing(host: Subject, board: str, devices: list[RdmaDevice], places: dict[str, str]) -> Iterator[Finding]:
    versions = Counter(device.firmware for device in devices).most_common()
    if len(versions) == 1:
        return
    usual, count = versions[0]
    if count == versions[1][1]:
        seen = ", ".join(sorted(str(version) for version, _ in versions))
        yield host.warns("network.firmware-mixed", seen, "one version", board=board)
        return
    for device in devices:
        if device.firmware != usual:
            name = f"nic:{places.get(device.name, device.name)}"
            subject = Subject(check=NAME, name=name, evidence=host.evidence)
            yield subject.warns(
                "network.firmware-differs", device.firmware, usual, device=device.name, board=board, usual=usual
            )


CHECK = Check(NAME, frozenset({"hardware", "network", "quick"}), evaluate=evaluate, needs=NEEDS)
