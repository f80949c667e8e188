"""PCIe link: has every GPU trained all the lanes that it and its slot are able to use?

Sources: nvmlDeviceGetCurrPcieLinkWidth, nvmlDeviceGetMaxPcieLinkWidth (minimum of device and system by the header) and
the generation calls. The current generation is not evaluated here: an idle card lowers it to save power, so it means
something only while copying.
"""

from collections.abc import Iterator

from gpucheck.checks._nvml import Hardware, each_gpu, not_reported, query_hardware, set_by_the_host
from gpucheck.model import Check, Finding, Gpu
from gpucheck.model.finding.about import About

NAME = "pcie-link"
CALLS = ("nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMaxPcieLinkWidth")


def evaluate(values: Hardware) -> Iterator[Finding]:
    nothing = "no GPU of this host has a PCIe link width"
    yield from each_gpu(NAME, values.nvml, lambda gpu: _evaluate(values, gpu), nothing=nothing)


def _evaluate(values: Hardware, gpu: Gpu) -> Finding | None:
    link = gpu.pcie
    if link.width is None or link.max_width is None:
        return not_reported(NAME, values.nvml, gpu, *CALLS, what="PCIe link width")
    about = About(
        check=NAME,
        subject=f"gpu:{gpu.pci_bus_id}",
        unit="lanes",
        evidence=(
            f"current {_words(link.generation, link.width)}",
            f"device and slot allow {_words(link.max_generation, link.max_width)}",
            f"device alone allows {_words(link.device_max_generation, None)}",
        ),
    )
    if link.width <= 0 or link.max_width <= 0:
        why = f"PCIe link width unknown: NVML reported {link.width} lanes, maximum {link.max_width}"
        return about.unknown(why, f"sudo lspci -vv -s {gpu.pci_bus_id} | grep -e LnkCap -e LnkSta")
    if link.width >= link.max_width:
        return about.passes(link.width)
    if values.virtual is not None:
        # Real captures of L40S and T4 cloud machines show x8 of x16 by design: the guest does not see the real slot.
        return set_by_the_host(NAME, values.virtual, about.subject, about.evidence)
    why = "The link has fewer PCIe lanes than card and slot can use: loose card, riser, or slot split in the BIOS."
    fix = f"reseat the card, check slot bifurcation in the BIOS, then: gpucheck verify --only {NAME}"
    return about.fails(link.width, link.max_width, why, fix, "pcie-width-reduced")


def _words(generation: int | None, width: int | None) -> str:
    parts = (f"Gen{generation}" if generation else "", f"x{width}" if width else "")
    return " ".join(filter(None, parts)) or "an unknown link"


CHECK = Check(NAME, frozenset({"hardware", "quick"}), query_hardware, evaluate)
