"""Settings that disable device isolation to allow peer copies: IOMMU translation, and ACS on PCIe bridges.

Each is applied only if the specification names it, and only on bare metal: the role fails on a virtual machine. Kernel
arguments are set in the boot loader, ACS by a service that runs at every boot.
"""

from typing import Any

from gpucheck.stack.packages import PlanGap

GRUB = "/etc/default/grub.d/90-gpucheck.cfg"
PROGRAM = "/usr/local/sbin/gpucheck-acs-off"
SERVICE = "gpucheck-acs-off"
# A later argument overrides an earlier one of the same name. On Arm, IOMMU arguments have no vendor prefix.
ARGUMENTS: dict[str, dict[str, tuple[str, ...]]] = {
    "x86_64": {"passthrough": ("iommu=pt",), "off": ("intel_iommu=off", "amd_iommu=off")},
    "sbsa": {"passthrough": ("iommu.passthrough=1",)},
}
# Appended to the arguments of a normal boot; recovery entries keep the original arguments of the host.
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
# so that copies between GPUs go through the switch that they share. Devices behind it are no longer isolated.
set -eu
# If setpci cannot run, a bridge must not look like one without the capability.
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
    """Return the plan's ``tuning.boot``: the kernel's arguments, and grub's file for them on Debian's family.

    None: the IOMMU is unmanaged. Raises PlanGap if no argument is known.
    """
    if iommu == "leave":
        return None
    arguments = ARGUMENTS[arch].get(iommu)
    if arguments is None:
        raise PlanGap(
            f"no kernel argument is known that makes the IOMMU {iommu} on {arch}",
            "kernel-parameters",
            "set tuning: {iommu: passthrough}, or remove the setting",
        )
    content = GRUB_FILE.format(arguments=" ".join(arguments))
    return {"arguments": list(arguments), "grub": {"path": GRUB, "content": content, "mode": "0644"}}


def acs_component() -> dict[str, Any]:
    """Return the component of the plan: tool, program and service; all are removed with the setting."""
    return {
        "packages": [{"name": "pciutils", "version": None, "spec": "pciutils"}],
        # A package of the system: it is upgraded with it.
        "holds": [],
        "files": [
            {"path": PROGRAM, "content": SCRIPT, "mode": "0755"},
            {"path": f"/etc/systemd/system/{SERVICE}.service", "content": UNIT, "mode": "0644"},
        ],
        "services": [{"name": SERVICE, "enabled": True, "state": "started"}],
    }
