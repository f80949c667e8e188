"""PCIe link: has every GPU trained all the lanes that it and its slot are able to use?

Sources: nvmlDeviceGetCurrPcieLinkWidth, nvmlDeviceGetMaxPcieLinkWidth (minimum of device and system by the header) and
the generation calls. The current generation is not evaluated here: an idle card lowers it to save power, so it means
something only while copying.
"""

from gpucheck.checks._nvml import about, not_reported, of_each_gpu, set_by_the_host
from gpucheck.model import Check, Finding, Gpu
from gpucheck.model.facts import Facts

NAME = "pcie-link"
CALLS = ("nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMaxPcieLinkWidth")


@of_each_gpu(NAME, nothing="pcie.no-link-width")
def evaluate(facts: Facts, gpu: Gpu) -> Finding | None:
    link = gpu.pcie
    if link.width is None or link.max_width is None:
        return not_reported(NAME, facts.nvml, gpu, *CALLS, what="PCIe link width")
    subject = about(
        NAME,
        gpu,
        f"current {_words(link.generation, link.width)}",
        f"device and slot allow {_words(link.max_generation, link.max_width)}",
        f"device alone allows {_words(link.device_max_generation, None)}",
        unit="lanes",
    )
    if link.width <= 0 or link.max_width <= 0:
        return subject.unknown("pcie.link-width-unknown", width=link.width, max_width=link.max_width)
    if link.width >= link.max_width:
        return subject.passes(link.width)
    if facts.system.virtual is not None:
        # Real captures of L40S and T4 cloud machines show x8 of x16 by design: the guest does not see the real slot.
        return set_by_the_host(NAME, facts.system.virtual, subject.name, subject.evidence)
    return subject.fails("pcie.width-reduced", link.width, link.max_width)


def _words(generation: int | None, width: int | None) -> str:
    parts = (f"Gen{generation}" if generation else "", f"x{width}" if width else "")
    return " ".join(filter(None, parts)) or "an unknown link"


CHECK = Check(NAME, frozenset({"hardware", "quick"}), evaluate=evaluate, needs=("nvml", "system"))
