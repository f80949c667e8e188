"""The kernel's parameters (/proc/cmdline, the first line of its log, GRUB's file): what they set the IOMMU to.

AMD's IOMMU needs no parameter, so their absence is no evidence. Sources: Linux
Documentation/admin-guide/kernel-parameters.txt; arch/x86/Kconfig and drivers/iommu/Kconfig (IOMMU_DEFAULT_DMA_LAZY).
"""

from gpucheck.imports._kind import Kind
from gpucheck.imports._problem import absent
from gpucheck.imports._regex import regex
from gpucheck.model.diagnosis.observations import Observations, ObservedHost
from gpucheck.model.facts import Facts
from gpucheck.model.paste import Part

LINE = regex(r"(?:BOOT_IMAGE=|\broot=(?:UUID=|/dev/)|GRUB_CMDLINE_LINUX(?:_DEFAULT)?=|[Cc]ommand line: )")
OFF = regex(r"(?<![\w.])(?:(?:intel_|amd_)?iommu=off)(?![\w=])")
IDENTITY = regex(r"(?<![\w.])(?:iommu=pt|iommu\.passthrough=1|iommu=[\w,]*\bpt\b)(?![\w=])")
TRANSLATING = regex(r"(?<![\w.])(?:intel_iommu=on\b|iommu\.passthrough=0|iommu=nopt|iommu=force)")


def parse(lines: list[str]) -> Part:
    text = " ".join(lines)
    if OFF.search(text):
        host, words = ObservedHost(iommu="off"), "is off"
    elif IDENTITY.search(text):
        host, words = ObservedHost(iommu="identity"), "passes addresses through"
    elif TRANSLATING.search(text):
        host, words = ObservedHost(iommu="translating"), "translates"
    else:
        raise absent("parameter of the IOMMU", "no parameter sets it", "Read its state: ls /sys/kernel/iommu_groups")
    return Part(facts=Facts(observed=Observations(host=host)), looked_at=(f"kernel parameters: the IOMMU {words}",))


KIND = Kind(
    "kernel-parameters",
    "the kernel's parameters (/proc/cmdline)",
    parse,
    hints=("iommu",),
    marks=("iommu",),
    line=lambda line: "iommu" in line and LINE.search(line) is not None,
)
