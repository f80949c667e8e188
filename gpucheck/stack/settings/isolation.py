"""What takes the isolation of devices away for the sake of peer copies: the IOMMU's translation, and ACS on bridges.

Only where a site asks for each by name, and only on bare metal: a host looks what it is, and refuses otherwise. The
kernel's arguments change through the boot loader, ACS by a service that runs at every boot.
"""

from typing import Any

from gpucheck.stack.packages import PlanGap

GRUB = "/etc/default/grub.d/90-gpucheck.cfg"
PROGRAM = "/usr/local/sbin/gpucheck-acs-off"
SERVICE = "gpucheck-acs-off"
# A later argument wins over an earlier one of the same name. On Arm, IOMMUs are named after no vendor.
ARGUMENTS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {"passthrough": ("iommu=pt",), "off": ("intel_iommu=off", "amd_iommu=off")},
    "sbsa": {"passthrough": ("iommu.passthrough=1",)},
}
# The last of what goes onto the line of a normal boot; an entry for recovery keeps the line that the host came with.
GRUB_FILE = """# Written by gpucheck: tuning.iommu in stack.yml. Recovery entries boot without it.
GRUB_CMDLINE_LINUX_DEFAULT="${{GRUB_CMDLINE_LINUX_DEFAULT:+$GRUB_CMDLINE_LINUX_DEFAULT }}{arguments}"
"""
UNIT = f"""# Written by gpucheck: tuning.acs in stack.yml.
[Unit]
Description=Clear ACS on the PCIe bridges above NVIDIA GPUs
Before=nvidia-persistenced.service nvidia-fabricmanager.service nvidia-dcgm.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={PROGRAM}

[Install]
WantedBy=multi-user.target
"""
# Six bytes into the capability is its control register. A bridge without the capability has nothing to clear.
SCRIPT = """#!/bin/sh
# Written by gpucheck: tuning.acs in stack.yml. Clears ACS on every PCIe bridge between the root and an NVIDIA GPU,
# so that copies between GPUs go through the switch that they share. Devices behind it are isolated no more.
set -eu
# What cannot run at all must not pass for a bridge without the capability.
setpci --version >/dev/null
sys=${1:-/sys}
for gpu in "$sys"/bus/pci/devices/*; do
    [ "$(cat "$gpu/vendor")" = 0x10de ] || continue
    case $(cat "$gpu/class") in 0x0300* | 0x0302*) ;; *) continue ;; esac
    above=$(dirname "$(readlink -f "$gpu")")
    while [ -e "$above/class" ]; do
        bridge=$(basename "$above")
        if setpci -s "$bridge" ECAP_ACS+6.w >/dev/null 2>&1; then
            setpci -s "$bridge" ECAP_ACS+6.w=0000
            left=$(setpci -s "$bridge" ECAP_ACS+6.w)
            [ "$left" = 0000 ] || { echo "$bridge keeps ACS $left" >&2; exit 1; }
        fi
        above=$(dirname "$above")
    done
done
"""


def kernel_arguments(iommu: str, arch: str) -> dict[str, Any] | None:
    """The plan's ``tuning.boot``: the kernel's arguments, and grub's file for them on Debian's family.

    None: the IOMMU is left as it is. Raises PlanGap where no argument is known.
    """
    if iommu == "leave":
        return None
    arguments = ARGUMENTS[arch].get(iommu)
    if arguments is None:
        raise PlanGap(
            f"no kernel argument is known that makes the IOMMU {iommu} on {arch}",
            "kernel-parameters",
            "tuning: {iommu: passthrough}, or leave it",
        )
    content = GRUB_FILE.format(arguments=" ".join(arguments))
    return {"arguments": list(arguments), "grub": {"path": GRUB, "content": content, "mode": "0644"}}


def acs_component() -> dict[str, Any]:
    """What the plan holds: the tool, the program and its service; all are removed with the setting."""
    return {
        "packages": [{"name": "pciutils", "version": None, "spec": "pciutils"}],
        # A tool of the system: it may move with that.
        "holds": [],
        "files": [
            {"path": PROGRAM, "content": SCRIPT, "mode": "0755"},
            {"path": f"/etc/systemd/system/{SERVICE}.service", "content": UNIT, "mode": "0644"},
        ],
        "services": [{"name": SERVICE, "enabled": True, "state": "started"}],
    }
