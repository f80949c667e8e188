"""CPU properties that limit GPU traffic: packet size of the root complex, and the socket link.

Model numbers as NVIDIA/nccl src/graph/topo.cc and the kernel's arch/x86 family tables group them.
"""

import re

import msgspec

# (family, first model): the entry with the highest first model not above the CPU's own counts.
INTEL = (
    (6, 0, "intel-broadwell"),
    (6, 0x55, "intel-skylake"),
    (6, 0x8F, "intel-sapphire-rapids"),
    (6, 0xCF, "intel-emerald-rapids"),
)
AMD = (
    (23, 0, "amd-zen1"),
    (23, 0x30, "amd-zen2"),
    (25, 0, "amd-zen3"),
    (25, 0x10, "amd-zen4"),
    (25, 0x20, "amd-zen3"),
    (25, 0x60, "amd-zen4"),
    (26, 0, "amd-zen5"),
)
FIELD = re.compile(r"^(vendor_id|CPU implementer|cpu family|model)[ \t]*:[ \t]*(\S+)", re.MULTILINE)


class Cpu(msgspec.Struct, frozen=True, kw_only=True):
    """vendor: ``intel``, ``amd`` or as the kernel prints it. link: key of the socket link rate, None if not known."""

    vendor: str
    link: str | None = None

    @property
    def intel(self) -> bool:
        """Whether peer traffic is split into 64-byte packets."""
        return self.vendor == "intel"


def identify(cpuinfo: str | None) -> Cpu | None:
    """Return the CPU of the text of /proc/cpuinfo, None if it has none. Arm prints an implementer code as vendor."""
    fields = dict(FIELD.findall((cpuinfo or "")[:65536]))
    family, model = fields.get("cpu family", ""), fields.get("model", "")
    numbers = (int(family), int(model)) if family.isdecimal() and model.isdecimal() else (None, None)
    return known(fields.get("vendor_id") or ("arm" if "CPU implementer" in fields else None), *numbers)


def known(vendor_id: str | None, family: int | None, model: int | None) -> Cpu | None:
    """Return the CPU by vendor, family and model as in /proc/cpuinfo; None without a vendor."""
    vendor = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}.get(vendor_id or "")
    if vendor is None:
        return Cpu(vendor=vendor_id) if vendor_id else None
    if family is None or model is None:
        return Cpu(vendor=vendor)
    table = INTEL if vendor == "intel" else AMD
    fits = [(first, name) for of, first, name in table if of == family and first <= model]
    return Cpu(vendor=vendor, link=max(fits)[1] if fits else None)
