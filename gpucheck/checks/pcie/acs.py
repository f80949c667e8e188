"""ACS: do PCIe switches pass traffic between GPUs, and between GPUs and RDMA network cards, straight across?

Source: the ACS control register of every bridge on the path of a pair, up to the switch that both share. The cost of
redirection is GPU peer copies between two GPUs, and GPUDirect RDMA between a GPU and a network card.
"""

from collections.abc import Iterator

from gpucheck.checks._case import Case
from gpucheck.checks._nvml import no_gpu_on_the_bus, set_by_the_host
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, Finding
from gpucheck.model.facts import Facts
from gpucheck.topology.pcie.acs import CHECK as NAME
from gpucheck.topology.pcie.acs import bridges_between, redirect_finding, redirecting, registers


def evaluate(facts: Facts) -> Iterator[Finding]:
    """One finding for all redirecting bridges, or one for the host."""
    host = Subject(check=NAME)
    between = bridges_between(facts.pci)
    found = redirect_finding(between)
    unread = [bridge.bus_id for bridge in between.every if not bridge.config_readable]
    if not any(device.is_nvidia_gpu for device in facts.pci):
        yield no_gpu_on_the_bus(NAME)
    elif facts.system.virtual is not None:
        yield set_by_the_host(NAME, facts.system.virtual)
    elif not between.every:
        yield host.skips("pcie.acs-no-shared-switch")
    elif found is not None:
        yield found
    elif unread:
        yield host.unknown("pcie.acs-needs-root", wanted="off", unread=len(unread), bridges=len(between.every))
    else:
        count = len(between.every)
        read = host.with_evidence(*registers(between.every))
        yield read.passes(f"ACS redirect off at {count} PCIe bridge{'s' * (count > 1)}")


def rule(case: Case) -> Iterator[Finding]:
    """Bridges that redirect where nothing was copied yet; a measured pair shows whether that costs anything."""
    m = case.machine
    near = [pair for pair in m.granted_over_pcie if m.is_near(pair)]
    near = near or [pair for pair in m.pairs if m.over_pcie(pair) and (m.is_near(pair) or m.classes[pair] is None)]
    if m.acs and near and not any(map(m.one_way, near)):
        yield redirecting(m.acs_bridges, confidence="likely")


CHECK = Check(NAME, frozenset({"hardware", "pcie", "quick"}), evaluate=evaluate, needs=("pci", "system"))
