"""What is wrong with a GPU, a network card, a bridge or a pair, for drawings and lists: a verdict and its cause."""

from collections.abc import Iterable
from typing import NamedTuple

from gpucheck.model import Finding, Topology, Verdict
from gpucheck.model.finding.naming import BUS_ID, bus_ids

BAD = (Verdict.FAIL, Verdict.WARN)
SIGN = {Verdict.FAIL: "\u00d7", Verdict.WARN: "!"}


class Fault(NamedTuple):
    """The worst finding about one place. cause: its key, or the check without one. links: whether NVLinks fail."""

    verdict: Verdict
    cause: str
    links: bool

    @property
    def words(self) -> str:
        """``FAIL nvlink-down``."""
        return f"{self.verdict.name} {self.cause}"


def faults(findings: Iterable[Finding]) -> dict[frozenset[str], Fault]:
    """Return the worst finding of each bus id, and of each pair of them."""
    found: dict[frozenset[str], Fault] = {}
    for finding in findings:
        place = frozenset(bus_ids(finding.subject))
        if finding.verdict not in BAD or not place:
            continue
        before = found.get(place)
        links = finding.check.startswith("nvlink") or bool(before and before.links)
        if before is None or BAD.index(finding.verdict) < BAD.index(before.verdict):
            found[place] = Fault(finding.verdict, finding.cause or finding.check, links)
        else:
            found[place] = before._replace(links=links)
    return found


class Absent(NamedTuple):
    """A GPU that the host has and the topology has not. number: its index, None if unknown."""

    number: int | None
    bus_id: str
    fault: Fault

    @property
    def name(self) -> str:
        """As in the topology: ``GPU3``."""
        return "GPU" if self.number is None else f"GPU{self.number}"


def absent(topology: Topology, findings: Iterable[Finding]) -> list[Absent]:
    """Return each GPU that fails and that the topology does not contain: a lost one."""
    known = {gpu.pci_bus_id for gpu in topology.gpus}
    found: dict[str, Absent] = {}
    for finding in findings:
        if not finding.subject.startswith("gpu:") or finding.verdict not in BAD:
            continue
        (bus_id,) = bus_ids(finding.subject)
        if bus_id not in known and BUS_ID.fullmatch(bus_id):
            fault = Fault(finding.verdict, finding.cause or finding.check, links=False)
            found.setdefault(bus_id, Absent(finding.gpu_index, bus_id, fault))
    return list(found.values())
