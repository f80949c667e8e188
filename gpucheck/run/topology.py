"""The topology of a host with all findings about it: of its paths, of its driver and of the GPUs that it lacks."""

from collections.abc import Iterable

from msgspec.structs import replace

from gpucheck.checks.gpu import inventory
from gpucheck.checks.software import driver
from gpucheck.host.source import HostSource
from gpucheck.model import Finding, Host, Topology, Verdict
from gpucheck.topology import of


def examine(host: Host) -> Topology:
    """Return the topology with findings; without GPUs, but with the reason, if NVML cannot be read or lists none."""
    topology = of(host)
    if topology is None:
        return _empty(host, driver.evaluate(HostSource(host).read(*driver.CHECK.needs)))
    # A GPU that is lost, hidden from this container or assigned to a virtual machine is not in the matrix.
    facts = HostSource(host).read(*inventory.CHECK.needs)
    absent = [f for f in inventory.evaluate(facts) if f.verdict is not Verdict.PASS]
    if not topology.gpus:
        return _empty(host, absent)
    return replace(topology, findings=(*topology.findings, *absent))


def _empty(host: Host, findings: Iterable[Finding]) -> Topology:
    simulated = host.simulation() is not None
    return Topology(simulated=simulated, source="nvml", gpus=(), matrix=(), findings=tuple(findings))
