"""ACS: do the bridges between two GPUs send their traffic straight across?

Source: the ACS control register of every bridge on the path of a pair, up to the switch that both share. Linux calls a
bridge redirecting when P2P request redirect (0x04), completion redirect (0x08) or egress control (0x20) is set
(drivers/pci/p2pdma.c). Source validation alone reroutes nothing.
"""

from collections.abc import Iterator
from itertools import combinations

import msgspec

from gpucheck.checks._nvml import no_gpu_on_the_bus
from gpucheck.model import Check, Finding, Host, PciDevice
from gpucheck.model.about import About
from gpucheck.topology.classify import shared_bridges

NAME = "acs"
REDIRECT = 0x04 | 0x08 | 0x20
FIX = (
    "on bare metal switch ACS off in the BIOS, or boot with pci=disable_acs_redir={}; "
    "leave it on where GPUs are handed to virtual machines"
)


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """All PCI functions that matter, and the kind of virtual machine where there is one."""

    pci: tuple[PciDevice, ...]
    virtual: str | None


def probe(host: Host) -> Values:
    """Ask sysfs."""
    return Values(pci=host.pci(), virtual=host.system().virtual)


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding for all redirecting bridges, or one for the host."""
    about = About(check=NAME)
    gpus = [device for device in values.pci if device.is_nvidia_gpu]
    between = _bridges_between(gpus, {device.bus_id: device for device in values.pci})
    if not gpus:
        yield no_gpu_on_the_bus(NAME)
    elif values.virtual is not None:
        yield about.skips(f"a {values.virtual} machine hides the bridges; its provider keeps ACS on to isolate guests")
    elif not between:
        yield about.skips("no two GPUs share a PCIe switch, so no bridge could redirect their traffic")
    else:
        yield _judge(between)


def _bridges_between(gpus: list[PciDevice], by_bus_id: dict[str, PciDevice]) -> list[PciDevice]:
    """Every bridge below the one that a pair shares, once each."""
    found: dict[str, PciDevice] = {}
    for a, b in combinations(gpus, 2):
        shared = shared_bridges(a, b)
        if shared:
            for bus_id in (*a.path[shared:], *b.path[shared:]):
                if bus_id in by_bus_id:
                    found[bus_id] = by_bus_id[bus_id]
    return list(found.values())


def _judge(bridges: list[PciDevice]) -> Finding:
    redirecting = [b for b in bridges if b.acs is not None and b.acs.control & REDIRECT]
    unread = [b.bus_id for b in bridges if not b.config_readable]
    registers = tuple(f"{b.bus_id}: ACS control 0x{b.acs.control:04x}" for b in bridges if b.acs is not None)
    about = About(check=NAME, unit="bridges", evidence=registers)
    if redirecting:
        why = "traffic between GPUs under one switch goes up to the CPU and back: slow, and on some boards it hangs"
        fix = FIX.format(";".join(bridge.bus_id for bridge in redirecting))
        return about.warns(len(redirecting), 0, why, fix, "acs-redirect")
    if unread:
        why = f"the ACS registers of {len(unread)} bridges lie beyond the 64 bytes that only root may exceed"
        return about.unknown(why, "sudo gpucheck verify --only acs", wanted=0)
    return about.passes(0, 0)


CHECK = Check(NAME, frozenset({"hardware", "pcie", "quick"}), probe, evaluate)
