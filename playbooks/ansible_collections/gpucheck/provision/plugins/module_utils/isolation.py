"""What a host is (bare metal or a guest), and which PCIe bridges above its GPUs have ACS enabled."""

import os
import re

from .readers.config_space import access_control, reader
from .readers.files import Unreadable, command, text
from .readers.pci import functions

CONTAINER = ("run/systemd/container", "run/.containerenv", ".dockerenv")
DMI = ("sys_vendor", "product_name", "bios_vendor", "board_vendor")
# Strings in a virtual machine's firmware tables. Some clouds' bare metal has the same vendor.
GUEST = re.compile(
    r"qemu|kvm|bochs|vmware|virtualbox|innotek|\bxen\b|virtual machine|parallels|openstack|google compute engine"
    r"|cloud hypervisor|bhyve|amazon ec2|alibaba cloud",
    re.IGNORECASE,
)
BARE = re.compile(r"metal|ebm", re.IGNORECASE)
REFUSED = (
    "tuning requires {}, but this host is {}: the isolation of its devices can only be changed on the physical machine "
    "below. Remove the setting from the stack.yml of this host (in a separate inventory), or ask the administrator of "
    "that machine"
)


def guest(root="/"):
    """Return the type of guest as text, None on bare metal. Any evidence counts: a false guest is the safer error."""
    environment = text(os.path.join(root, "proc/1/environ")) or ""
    if any(os.path.exists(os.path.join(root, path)) for path in CONTAINER) or "container=" in environment:
        return "a container"
    try:
        detected = command(["systemd-detect-virt"]).strip() if root == "/" else ""
    except Unreadable:
        detected = ""  # it is missing, or prints none with an exit status of its own
    if detected not in ("", "none"):
        return f"a virtual machine ({detected})"
    kind = text(os.path.join(root, "sys/hypervisor/type"))
    if kind:
        return f"a virtual machine ({kind})"
    firmware = " ".join(text(os.path.join(root, "sys/class/dmi/id", name)) or "" for name in DMI)
    found = GUEST.search(firmware)
    if found and not BARE.search(firmware):
        return f"a virtual machine ({found.group(0)})"
    flags = re.search(r"^flags\s*:.*\bhypervisor\b", text(os.path.join(root, "proc/cpuinfo")) or "", re.MULTILINE)
    return "a virtual machine (processor flag)" if flags else None


def bridges(root="/"):
    found = set()
    for gpu in (one for one in functions(root) if one.is_nvidia_gpu):
        above = os.path.dirname(os.path.realpath(gpu.folder))
        while os.path.exists(os.path.join(above, "class")):
            found.add(os.path.basename(above))
            above = os.path.dirname(above)
    return sorted(found)


def acs_control(config):
    """The ACS control register in a bridge's configuration space, None without the capability, or where it was cut off:
    only root reads beyond the first 256 bytes.
    """
    registers = access_control(reader(config))
    return registers and registers[1]


def acs_words(root="/"):
    words = []
    for bridge in bridges(root):
        try:
            with open(os.path.join(root, "sys/bus/pci/devices", bridge, "config"), "rb") as file:
                control = acs_control(file.read())
        except OSError:
            continue
        if control:
            words.append(f"ACS is on at bridge {bridge} (control {control:04x}), planned off")
    return words


def refusals(plan, root="/"):
    requested = ["iommu"] if (plan.get("tuning") or {}).get("boot") else []
    requested += ["acs"] if plan["components"].get("acs") else []
    kind = guest(root) if requested else None
    return [REFUSED.format(" and ".join(requested), kind)] if kind else []
