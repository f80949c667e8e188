"""The topology of a host with all findings about it: paths, links, driver, network cards and GPUs that it lacks."""

from collections.abc import Iterable

from msgspec.structs import replace

from gpucheck.checks.gpu import inventory
from gpucheck.checks.network import ports, rails
from gpucheck.checks.nvlink import links
from gpucheck.checks.pcie import acs, link, path
from gpucheck.checks.software import driver
from gpucheck.model import Check, Finding, NotRecorded, Topology, Verdict
from gpucheck.model.facts import Source
from gpucheck.model.finding import GOOD
from gpucheck.run.step import evaluated
from gpucheck.topology import of
from gpucheck.topology.nics import NEEDS, cards_of_gpus, roles, variables

CHECKS = (links.CHECK, link.CHECK, path.CHECK, acs.CHECK, ports.CHECK, rails.CHECK)


def examine(source: Source) -> Topology:
    """Return the topology with findings; without GPUs, but with the reason, if NVML cannot be read or lists none."""
    topology = of(source)
    if topology is None:
        return _empty(source, driver.evaluate(source.read(*driver.CHECK.needs)))
    # A GPU that is lost, hidden from this container or assigned to a virtual machine is not in the matrix.
    absent = [one for one in _evaluated(inventory.CHECK, source) if one.verdict is not Verdict.PASS]
    if not topology.gpus:
        return _empty(source, absent)
    evaluations = [one for check in CHECKS for one in _evaluated(check, source) if one.verdict not in GOOD]
    found = (*topology.findings, *evaluations, *absent)
    return _with_network(replace(topology, findings=found), source)


def _with_network(topology: Topology, source: Source) -> Topology:
    """Add the use and the ports of network cards, and what has NCCL and UCX use those of the GPUs."""
    try:
        facts = source.read(*NEEDS)
    except NotRecorded:
        return topology
    devices, found = {device.name: device for device in facts.rdma}, roles(facts)
    cards = cards_of_gpus(facts)
    near = {card.device.name: card.gpus for card in cards}
    nics = tuple(
        replace(
            nic,
            role=found[nic.name].name,
            reason=found[nic.name].reason,
            gpus=tuple(gpu.index for gpu in topology.gpus if gpu.pci_bus_id in near.get(nic.name, ())),
            ports=devices[nic.name].ports,
        )
        if nic.name is not None and nic.name in found
        else nic
        for nic in topology.nics
    )
    return replace(topology, nics=nics, variables=variables(cards))


def _evaluated(check: Check, source: Source) -> Iterable[Finding]:
    try:
        return tuple(evaluated(check, source))
    except NotRecorded as error:
        from gpucheck.run.step import not_recorded

        return (not_recorded(check.name, error),)


def _empty(source: Source, findings: Iterable[Finding]) -> Topology:
    simulated = source.read("simulation").simulation is not None
    return Topology(simulated=simulated, source="nvml", gpus=(), matrix=(), findings=tuple(findings))
