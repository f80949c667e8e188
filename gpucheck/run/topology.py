"""The topology of a host with all findings about it: of its paths, of its driver and of the GPUs that it lacks."""

from collections.abc import Iterable

from msgspec.structs import replace

from gpucheck.checks.gpu import inventory
from gpucheck.checks.software import driver
from gpucheck.model import Finding, NotRecorded, Topology, Verdict
from gpucheck.model.facts import Source
from gpucheck.topology import of


def examine(source: Source) -> Topology:
    """Return the topology with findings; without GPUs, but with the reason, if NVML cannot be read or lists none."""
    topology = of(source)
    if topology is None:
        return _empty(source, driver.evaluate(source.read(*driver.CHECK.needs)))
    # A GPU that is lost, hidden from this container or assigned to a virtual machine is not in the matrix.
    try:
        evaluated = inventory.evaluate(source.read(*inventory.CHECK.needs))
        absent = [finding for finding in evaluated if finding.verdict is not Verdict.PASS]
    except NotRecorded as error:
        from gpucheck.run.guard import not_recorded

        absent = [not_recorded(inventory.CHECK.name, error)]
    if not topology.gpus:
        return _empty(source, absent)
    return replace(topology, findings=(*topology.findings, *absent))


def _empty(source: Source, findings: Iterable[Finding]) -> Topology:
    simulated = source.read("simulation").simulation is not None
    return Topology(simulated=simulated, source="nvml", gpus=(), matrix=(), findings=tuple(findings))
