"""Host settings for training: the ``tuning`` of stack.yml, and the files that make it persistent.

Off by default. Settings for bare metal that disable isolation (IOMMU, ACS) are not part of ``recommended``: the
specification must name them. ``gpucheck verify`` reports where isolation prevents peer copies.

Each is applied only if the specification names it, and only on bare metal: the role fails on a virtual machine. Kernel
arguments are set in the boot loader, ACS by a service that runs at every boot.
"""

from typing import Any, Literal

import msgspec

from gpucheck.knowledge.strict import Value
from gpucheck.stack.packages import PlanGap

LEAVE = "leave"
LARGEST = 1 << 40
SYSCTL = "/etc/sysctl.d/90-gpucheck.conf"
TMPFILES = "/etc/tmpfiles.d/gpucheck-tuning.conf"
LIMITS = "/etc/security/limits.d/90-gpucheck.conf"
MANAGER = "/etc/systemd/system.conf.d/90-gpucheck.conf"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
GOVERNORS = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
# key: its values in addition to leave; None is an integer.
CHOICES: dict[str, tuple[str, ...] | None] = {
    "numa_balancing": ("off",),
    "transparent_hugepages": ("always", "madvise", "never"),
    "hugepages": None,
    "memlock": ("unlimited",),
    "nofile": None,
    "governor": ("performance", "schedutil"),
    "iommu": ("passthrough", "off"),
    "acs": ("off",),
}


class Tuning(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """stack.yml's ``tuning``; leave = unmanaged.

    hugepages: number of 2 MiB pages reserved at boot. nofile: open files of a process. sysctl: additional keys.
    acs is a component of the plan.
    """

    numa_balancing: Literal["leave", "off"] = "leave"
    transparent_hugepages: Literal["leave", "always", "madvise", "never"] = "leave"
    hugepages: str = LEAVE
    memlock: Literal["leave", "unlimited"] = "leave"
    nofile: str = LEAVE
    governor: Literal["leave", "performance", "schedutil"] = "leave"
    iommu: Literal["leave", "passthrough", "off"] = "leave"
    acs: Literal["leave", "off"] = "leave"
    sysctl: dict[str, str] = msgspec.field(default_factory=dict)


# numa_balancing: it unmaps pages to observe accesses, also pages that a GPU uses. madvise: huge pages for programs that
# request them, without the stalls of always. memlock: RDMA registers its buffers as locked memory. nofile: workers that
# load data share memory through open files, and the default of 1024 is too low.
RECOMMENDED = Tuning(
    numa_balancing="off", transparent_hugepages="madvise", memlock="unlimited", nofile="1048576", governor="performance"
)


def read_tuning(value: Value) -> Tuning:
    """Read ``none``, ``recommended``, or single settings. Raises InputProblem with the line."""
    if not value.is_mapping:
        return RECOMMENDED if value.word("none", "auto", "recommended") == "recommended" else Tuning()
    readers: dict[str, Any] = {key: _reader(words) for key, words in CHOICES.items()}
    fields = value.fields({**readers, "sysctl": _sysctl})
    return msgspec.convert(fields, Tuning)


def _reader(words: tuple[str, ...] | None) -> Any:
    if words is not None:
        return lambda value: value.word(LEAVE, *words)
    return lambda value: LEAVE if value.text() == LEAVE else str(value.integer(0, LARGEST))


def _sysctl(value: Value) -> dict[str, str]:
    found = {}
    for key, inner in value.pairs():
        if "." not in key or not key.replace(".", "").replace("_", "").replace("-", "").isalnum():
            raise inner.problem("is not a kernel setting: write it as sysctl does, for example vm.swappiness")
        found[key] = inner.text().strip()
    return found


def tuning_plan(spec: Tuning, arch: str = "x86_64") -> dict[str, Any] | None:
    """Return the plan's ``tuning``: persistent files, and values to set immediately if the host allows it.

    live: path (a pattern), value, and the name of the setting. boot: see ``kernel_arguments``; omitted if none is
    requested. None: no setting is requested. Raises PlanGap.
    """
    boot = kernel_arguments(spec.iommu, arch)
    keys = _kernel_keys(spec)
    files = [
        _file(SYSCTL, [f"-{key} = {value}" for key, value in keys.items()]),
        _file(TMPFILES, [f"w {path} - - - - {value}" for path, value in _sysfs(spec)]),
        _file(LIMITS, _limits(spec)),
        _file(MANAGER, _manager(spec)),
    ]
    wanted = [file for file in files if file]
    if not wanted and not boot:
        return None
    live = [
        {"path": f"/proc/sys/{key.replace('.', '/')}", "value": value, "name": key}
        for key, value in keys.items()
        # Fragmented memory gives fewer pages than requested, so they are reserved at boot.
        if key != "vm.nr_hugepages"
    ]
    live += [{"path": path, "value": value, "name": NAMES[path]} for path, value in _sysfs(spec)]
    return {"files": wanted, "live": live, **({"boot": boot} if boot else {})}


NAMES = {THP: "transparent huge pages", GOVERNORS: "the CPU governor"}


def _kernel_keys(spec: Tuning) -> dict[str, str]:
    keys = {"kernel.numa_balancing": "0"} if spec.numa_balancing == "off" else {}
    if spec.hugepages != LEAVE:
        keys["vm.nr_hugepages"] = spec.hugepages
    return {**keys, **spec.sysctl}


def _sysfs(spec: Tuning) -> list[tuple[str, str]]:
    pairs = ((THP, spec.transparent_hugepages), (GOVERNORS, spec.governor))
    return [(path, value) for path, value in pairs if value != LEAVE]


def _limits(spec: Tuning) -> list[str]:
    """Return the lines of limits.d; ``*`` includes all users except root."""
    values = (("memlock", spec.memlock), ("nofile", spec.nofile))
    return [f"{who} - {item} {value}" for item, value in values if value != LEAVE for who in ("*", "root")]


def _manager(spec: Tuning) -> list[str]:
    """Return the default limits of services; limits.d applies to logins only."""
    lines = ["DefaultLimitMEMLOCK=infinity"] if spec.memlock != LEAVE else []
    lines += [f"DefaultLimitNOFILE={spec.nofile}"] if spec.nofile != LEAVE else []
    return ["[Manager]", *lines] if lines else []


def _file(path: str, lines: list[str]) -> dict[str, Any]:
    head = "# Written by gpucheck: tuning in stack.yml\n"
    return {"path": path, "content": head + "\n".join(lines) + "\n", "mode": "0644"} if lines else {}


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
