"""The topology of a host with all findings about it: of its paths, its links, its driver and the GPUs that it lacks."""

from collections.abc import Iterable

from msgspec.structs import replace

from gpucheck.checks.gpu import inventory
from gpucheck.checks.nvlink import links
from gpucheck.checks.pcie import acs, link, path
from gpucheck.checks.software import driver
from gpucheck.model import Check, Finding, NotRecorded, Topology, Verdict
from gpucheck.model.facts import Source
from gpucheck.model.finding import FOUND
from gpucheck.run.step import evaluated
from gpucheck.topology import of
from gpucheck.topology.nics import cards_of_gpus, variables

LINKS = (links.CHECK, link.CHECK, path.CHECK, acs.CHECK)


def examine(source: Source) -> Topology:
    """Return the topology with findings; without GPUs, but with the reason, if NVML cannot be read or lists none."""
    topology = of(source)
    if topology is None:
        return _empty(source, driver.evaluate(source.read(*driver.CHECK.needs)))
    # A GPU that is lost, hidden from this container or assigned to a virtual machine is not in the matrix.
    absent = [one for one in _evaluated(inventory.CHECK, source) if one.verdict is not Verdict.PASS]
    if not topology.gpus:
        return _empty(source, absent)
    links = [one for check in LINKS for one in _evaluated(check, source) if one.verdict in FOUND]
    found = (*topology.findings, *links, *absent)
    return replace(topology, findings=found, variables=_variables(source))


def _variables(source: Source) -> tuple[str, ...]:
    try:
        facts = source.read("rdma", "pci")
    except NotRecorded:
        return ()
    return variables(cards_of_gpus(facts.rdma, facts.pci))


def _evaluated(check: Check, source: Source) -> Iterable[Finding]:
    try:
        return tuple(evaluated(check, source))
    except NotRecorded as error:
        from gpucheck.run.guard import not_recorded

        return (not_recorded(check.name, error),)


def _empty(source: Source, findings: Iterable[Finding]) -> Topology:
    simulated = source.read("simulation").simulation is not None
    return Topology(simulated=simulated, source="nvml", gpus=(), matrix=(), findings=tuple(findings))
