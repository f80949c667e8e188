"""What can stand in the way of peer traffic on PCIe: bridges that redirect it, an IOMMU that translates it."""

from collections.abc import Iterable
from typing import NamedTuple

from gpucheck.diagnose._rule import Confidence
from gpucheck.diagnose.machine import Machine, Pair

TELL_APART = (
    "sudo lspci -vvv | grep -e ^[0-9a-f] -e ACSCtl (ReqRedir+ or CmpltRedir+ on a bridge of the path is ACS redirect); "
    "cat /sys/kernel/iommu_groups/*/type (DMA or DMA-FQ translates)"
)
IN_GUEST = "inside a virtual machine neither can be cleared: ask the provider, who needs ATS with DirectTrans"


class Suspect(NamedTuple):
    """cause: a key. words: why it is suspected. fix: how to make sure, besides the cause's own remedy."""

    cause: str
    confidence: Confidence
    words: str
    fix: str = ""


def on_path(machine: Machine, pairs: Iterable[Pair]) -> list[Suspect]:
    """What hinders copies between GPUs over PCIe, told apart by what is known of the host.

    One suspect where the facts point at it, two (each possible) where they are silent, none where they rule both out.
    """
    acs, translating = machine.acs, machine.translating
    beyond = all(machine.classes[pair] in ("PHB", "NODE", "SYS") for pair in pairs)
    if machine.host.virtual and acs is None and translating is None:
        words = "a virtual machine's GPUs are always behind a translating IOMMU"
        return [Suspect("iommu-translation", "likely", words, IN_GUEST)]
    if acs:
        named = f" ({', '.join(machine.acs_bridges[:4])})" if machine.acs_bridges else ""
        also = "; the IOMMU translates as well" if translating else ""
        if not (beyond and translating):
            confidence: Confidence = "certain" if machine.acs_bridges else "likely"
            return [Suspect("acs-redirect", confidence, f"bridges on the path redirect peer traffic{named}{also}")]
    if translating:
        return [Suspect("iommu-translation", "likely", "the IOMMU translates what the GPUs send to each other")]
    if acs is False and translating is False:
        return []
    if acs is False:
        words = "ACS redirects nothing, which leaves an IOMMU that translates"
        return [Suspect("iommu-translation", "possible", words, TELL_APART)]
    if translating is False:
        words = "the IOMMU does not translate, which leaves bridges that redirect (ACS)"
        return [Suspect("acs-redirect", "possible" if beyond else "likely", words, TELL_APART)]
    both = "neither ACS nor the IOMMU was looked at: bridges that redirect (ACS) or an IOMMU that translates"
    return [
        Suspect("acs-redirect", "possible", both, TELL_APART),
        Suspect("iommu-translation", "possible", both, TELL_APART),
    ]
