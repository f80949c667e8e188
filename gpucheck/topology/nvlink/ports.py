"""Which NVLink ports of a GPU are up, and which its model should have."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpucheck.knowledge import GpuModel, find_gpu, gpu_by_pci_id
from gpucheck.knowledge.codes import Subject
from gpucheck.model.finding import Confidence, Finding
from gpucheck.model.host.hardware import Gpu
from gpucheck.model.host.readings import NvmlReading

CHECK = "nvlink"
STATE_CALL = "nvmlDeviceGetNvLinkState"
PAST = (2, 3)  # NVML: invalid argument, not supported: there is no such link


class Ports(NamedTuple):
    """up: active ports. down, asleep: numbers of ports that are not. wanted: by the model, None where not known."""

    gpu: Gpu
    model: GpuModel | None
    up: int
    down: tuple[int, ...]
    asleep: tuple[int, ...]
    wanted: int | None

    @property
    def bridged(self) -> bool:
        """Whether the model has its links only through a bridge, which a host need not have."""
        return bool(self.model and self.model.nvlink and self.model.nvlink.bridge)

    @property
    def evidence(self) -> tuple[str, ...]:
        asleep = f", asleep: {_numbers(self.asleep)}" if self.asleep else ""
        counts = f"{self.up} of {len(self.gpu.nvlinks)} ports active, inactive: {_numbers(self.down) or 'none'}{asleep}"
        return (f"{STATE_CALL}: {counts}",)

    @property
    def subject(self) -> Subject:
        return Subject(check=CHECK, name=f"gpu:{self.gpu.pci_bus_id}", unit="NVLinks", evidence=self.evidence)


def ports_of(gpu: Gpu, limit: int | None = None) -> Ports:
    """Return the ports of a GPU. limit: how many links a driver option allows."""
    model = gpu_by_pci_id(gpu.device_id) or find_gpu(gpu.name)
    asleep = tuple(link.link for link in gpu.nvlinks if link.state == "asleep")
    down = tuple(link.link for link in gpu.nvlinks if not link.active and link.link not in asleep)
    wanted = model.nvlink.links if model and model.nvlink else 0 if model else None
    if wanted is not None and limit:
        wanted = min(wanted, limit)
    return Ports(gpu, model, gpu.active_nvlinks, down, asleep, wanted)


def inactive_finding(ports: Ports, *, certain: bool) -> Finding:
    """Return FAIL for ports that are reported inactive, or that the model has and NVML does not list.

    certain: not where a hypervisor may have taken the links away.
    """
    model, listed = ports.model.name if ports.model else ports.gpu.name, len(ports.gpu.nvlinks)
    if ports.wanted is not None and listed < ports.wanted:
        code = "topology.bridge-nvlinks-not-listed" if ports.bridged else "topology.nvlinks-not-listed"
        return ports.subject.fails(code, ports.up, ports.wanted, model=model, expected=ports.wanted, listed=listed)
    code = "topology.bridge-nvlinks-inactive" if ports.bridged else "topology.nvlinks-inactive"
    sure: Confidence = "certain" if certain else "likely"
    return ports.subject.fails(code, ports.up, ports.wanted, confidence=sure, model=model, links=ports.down)


def none_active_finding(ports: Ports) -> Finding:
    """Return FAIL for a GPU none of whose links is active, by whether NVML lists them."""
    model, listed = ports.model.name if ports.model else ports.gpu.name, len(ports.gpu.nvlinks)
    if listed:
        return ports.subject.fails("nvlink.none-active", 0, ports.wanted, ports=listed, model=model, links=ports.wanted)
    return ports.subject.fails("nvlink.none-listed", 0, ports.wanted, model=model, links=ports.wanted)


def one_per_link(found: Sequence[tuple[Ports, Finding]]) -> Iterator[Finding]:
    """Yield the findings, those of two GPUs as one if their inactive links can only be between these two.

    NVML names no far end of an inactive link. But on a board without NVSwitch each link has its ends on two GPUs.
    """
    short = [(ports, finding) for ports, finding in found if finding.cause == "nvlink-down"]
    kinds = {link.remote_kind for ports, _ in found for link in ports.gpu.nvlinks if link.active}
    if len(short) != 2 or kinds != {"gpu"} or len(short[0][0].down) != len(short[1][0].down):
        yield from (finding for _, finding in found)
        return
    (one, first), (other, second) = short
    both = Subject(
        check=CHECK,
        name=f"pair:{one.gpu.pci_bus_id}-{other.gpu.pci_bus_id}",
        unit=first.unit,
        evidence=tuple(dict.fromkeys((*first.evidence, *second.evidence))),
    ).fails(
        "topology.bridge-link-ends-inactive" if one.bridged else "topology.link-ends-inactive",
        first.seen,
        first.wanted,
        confidence=first.confidence,
        links=one.down,
        peer_links=other.down,
    )
    yield from (both if finding is first else finding for _, finding in found if finding is not second)


def reduced_findings(reading: NvmlReading, virtual: str | None) -> Iterator[Finding]:
    """Yield a finding for each GPU that has fewer NVLinks than its model, while it or another GPU has some.

    A GPU without a readable link state is left to the check, which has the reason.
    """
    refused = {gap.subject.partition("/")[0] for gap in reading.gaps if gap.call == STATE_CALL and gap.code not in PAST}
    every = [ports_of(gpu) for gpu in reading.gpus if f"link:{gpu.pci_bus_id}" not in refused]
    if any(ports.up for ports in every):
        short = [ports for ports in every if ports.wanted is not None and ports.up + len(ports.asleep) < ports.wanted]
        shown = [ports for ports in short if ports.gpu.nvlinks and (ports.up or not ports.bridged)]
        yield from one_per_link([(ports, inactive_finding(ports, certain=virtual is None)) for ports in shown])


def _numbers(links: Sequence[int]) -> str:
    return ", ".join(map(str, links))
