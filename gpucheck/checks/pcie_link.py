"""PCIe link: has every GPU trained all the lanes that it and its slot are able to use?

Sources: nvmlDeviceGetCurrPcieLinkWidth, nvmlDeviceGetMaxPcieLinkWidth (minimum of device and system by the header) and
the generation calls. The current generation is not judged here: an idle card lowers it to save power, so it means
something only while copying.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.checks._nvml import no_gpus, not_looked
from gpucheck.model import Check, Finding, Gpu, Host, NvmlFailure, NvmlReading, Verdict

NAME = "pcie-link"


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs, and the kind of virtual machine where there is one."""

    nvml: NvmlReading | NvmlFailure
    virtual: str | None


def probe(host: Host) -> Values:
    """Ask NVML, and whether this is a virtual machine."""
    return Values(nvml=host.nvml(), virtual=host.system().virtual)


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding a GPU."""
    if isinstance(values.nvml, NvmlFailure):
        yield not_looked(NAME, values.nvml)
        return
    if not values.nvml.gpus:
        yield no_gpus(NAME)
    for gpu in values.nvml.gpus:
        yield _judge(gpu, values.virtual)


def _judge(gpu: Gpu, virtual: str | None) -> Finding:
    link, subject = gpu.pcie, f"gpu:{gpu.pci_bus_id}"
    evidence = (
        f"current Gen{link.generation} x{link.width}",
        f"device and slot allow Gen{link.max_generation} x{link.max_width}",
        f"device alone allows Gen{link.device_max_generation}",
    )
    if link.width is None or link.max_width is None:
        return Finding(
            check=NAME,
            verdict=Verdict.UNKNOWN,
            subject=subject,
            seen=link.width,
            wanted=link.max_width,
            unit="lanes",
            why="NVML does not tell the PCIe width of this GPU",
            fix=f"lspci -vv -s {gpu.pci_bus_id} | grep -e LnkCap -e LnkSta",
            evidence=evidence,
        )
    if link.width >= link.max_width:
        return Finding(
            check=NAME,
            verdict=Verdict.PASS,
            subject=subject,
            seen=link.width,
            wanted=link.max_width,
            unit="lanes",
            evidence=evidence,
        )
    if virtual is not None:
        # Real captures of L40S and T4 cloud machines show x8 of x16 by design: the slot is not ours to see.
        return Finding(
            check=NAME,
            verdict=Verdict.SKIP,
            subject=subject,
            seen=link.width,
            wanted=link.max_width,
            unit="lanes",
            why=f"inside a {virtual} machine the width is the provider's choice, not a fault of the link",
            evidence=evidence,
        )
    return Finding(
        check=NAME,
        verdict=Verdict.FAIL,
        subject=subject,
        seen=link.width,
        wanted=link.max_width,
        unit="lanes",
        cause="pcie-width-reduced",
        confidence="likely",
        why="loose card, riser, or a slot split in firmware",
        fix=f"reseat the card, check slot bifurcation, then: gpucheck verify --only {NAME}",
        evidence=evidence,
    )


CHECK = Check(NAME, frozenset({"hardware", "quick"}), probe, evaluate)
