"""The CPU property that limits GPU traffic: the packet size of the root complex."""

import re

import msgspec

FIELD = re.compile(r"^(vendor_id|CPU implementer)[ \t]*:[ \t]*(\S+)", re.MULTILINE)


class Cpu(msgspec.Struct, frozen=True, kw_only=True):
    """vendor: ``intel``, ``amd`` or as the kernel prints it."""

    vendor: str

    @property
    def intel(self) -> bool:
        """Whether peer traffic is split into 64-byte packets. Source: NVIDIA/nccl src/graph/topo.cc."""
        return self.vendor == "intel"


def identify(cpuinfo: str | None) -> Cpu | None:
    """Return the CPU of the text of /proc/cpuinfo, None if it has none. Arm prints an implementer code as vendor."""
    fields = dict(FIELD.findall((cpuinfo or "")[:65536]))
    return known(fields.get("vendor_id") or ("arm" if "CPU implementer" in fields else None))


def known(vendor_id: str | None) -> Cpu | None:
    """Return the CPU by its vendor as in /proc/cpuinfo; None without a vendor."""
    vendor = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}.get(vendor_id or "", vendor_id)
    return Cpu(vendor=vendor) if vendor else None
