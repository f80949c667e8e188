"""Settings of the specification that choose no version, and the files that carry them out.

Of the driver: its components (NVENC, MPS, OpenGL and others, at its version), module options, the key that signs the
module where secure boot is on (MOK), IMEX.

``tuning``: host settings for training, off by default. Settings for bare metal that disable isolation (IOMMU, ACS) are
not part of ``recommended``: the specification must name them, and the role fails on a virtual machine. Kernel arguments
are set in the boot loader, ACS by a service that runs at every boot.
"""

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from gpucheck.knowledge.packages import DriverExtra, options
from gpucheck.knowledge.strict import Value, did_you_mean
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.packages import Package, PlanGap, at_driver_version, fabric_packages
from gpucheck.stack.types import StackSet

MOST = 16


def read_driver_extra(value: Value) -> tuple[str, ...]:
    """Read ``none``, or a list of components, sorted. Raises InputProblem with the line."""
    if not value.is_list:
        value.word("none", "auto")
        return ()
    found = set()
    for row in value.items(MOST):
        name = row.text().strip()
        if name not in options().driver_extra:
            raise row.problem(f"{name!r} is not a driver component. {did_you_mean(name, options().driver_extra)}")
        found.add(name)
    return tuple(sorted(found))


def extra_packages(system: OperatingSystem, stack: StackSet, names: tuple[str, ...]) -> list[Package]:
    """Return the packages of these components, at the driver's version. Raises PlanGap if names are unknown."""
    found: dict[str | None, Package] = {}
    for name in names:
        for package in _packages(system, stack, name):
            found[package["name"]] = package
    return list(found.values())


def _packages(system: OperatingSystem, stack: StackSet, name: str) -> list[Package]:
    branch, part = stack.driver.branch, options().driver_extra.get(name)
    row = _row(part, system, branch) if part else None
    if row is None:
        raise PlanGap(
            f"the packages of driver_extra {name} on {system.name} with driver branch {branch} are not known",
            "cuda-repo",
            f"driver_extra without {name} in stack.yml",
        )
    known = [package.format(branch=branch) for package in row]
    if part and part.fabric:
        return fabric_packages(system, stack, known)
    return [at_driver_version(system, stack, package) for package in known]


def _row(part: DriverExtra, system: OperatingSystem, branch: str) -> tuple[str, ...] | None:
    for row in part.packages:
        if system.os_id in row.os and int(row.branches.first) <= int(branch) <= int(row.branches.last):
            return row.names
    return None


MODULE_OPTIONS = "/etc/modprobe.d/gpucheck-nvidia.conf"
NAME = re.compile(r"NVreg_[A-Za-z0-9]+")
# Forms that the driver documents: numbers, words, and lists such as PeerMappingOverride=1;Another=0x10.
VALUE = re.compile(r"[\w.,:;=+-]+")


def read_module_options(value: Value) -> dict[str, str]:
    """Read ``none``, or options by name. Raises InputProblem with the line."""
    if not value.is_mapping:
        value.word("none", "auto")
        return {}
    found = {}
    for name, inner in value.pairs():
        if not NAME.fullmatch(name):
            raise inner.problem("is not an nvidia module option: these begin with NVreg_ (modinfo nvidia lists them)")
        text = inner.text().strip()
        if not VALUE.fullmatch(text):
            raise inner.problem(f"{text!r} is not valid in a modprobe file: use a number, a word, or name=value;...")
        found[name] = text
    return found


def options_line(options: dict[str, str]) -> str:
    """Return the line of modprobe.d, ``options nvidia NVreg_A=1 NVreg_B="x=1;y=2"``."""
    words = (f"{name}={value}" if value.isalnum() else f'{name}="{value}"' for name, value in sorted(options.items()))
    return f"options nvidia {' '.join(words)}\n"


MOK = "/etc/dkms/framework.conf.d/gpucheck-mok.conf"
# DKMS reads its settings with a shell.
SAFE = re.compile(r"/[A-Za-z0-9._/+-]+")


class Mok(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """stack.yml's ``mok``: paths on the hosts, both or neither. certificate: DER, as mokutil needs it."""

    key: str | None = None
    certificate: str | None = None


def read_mok(value: Value) -> Mok:
    """Read ``none``, or ``key`` and ``certificate``. Raises InputProblem with the line."""
    if not value.is_mapping:
        value.word("none", "auto")
        return Mok()
    found = value.fields({"key": host_path, "certificate": host_path})
    lacking = [name for name in ("key", "certificate") if name not in found]
    if lacking:
        raise value.problem(f"{lacking[0]} is missing: DKMS signs with a key and its certificate")
    return Mok(**found)


def host_path(value: Value) -> str:
    """A path of a file on the hosts. Raises InputProblem with the line."""
    text = value.text().strip()
    if not SAFE.fullmatch(text):
        raise value.problem(f"{text!r} is not an absolute path of letters, digits and . _ + - on the hosts")
    return text


def mok_file(mok: Mok) -> str:
    return f"mok_signing_key={mok.key}\nmok_certificate={mok.certificate}\n"


# The list must be the same on every node of a domain. Slurm's prolog writes it for each job and starts the daemon.
# NVIDIA's DRA driver runs its daemon in a container, and a second one on the host would conflict with it.
SERVICE = "nvidia-imex"
NODES = "/etc/nvidia-imex/nodes_config.cfg"
MOST_NODES = 1024


class Imex(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """stack.yml's ``imex``. nodes: addresses of every node of the domain, for systemd alone."""

    service: Literal["none", "slurm", "systemd"] = "none"
    nodes: tuple[str, ...] = ()


def read_imex(value: Value) -> Imex:
    """Read ``none``, ``slurm``, or ``service`` and ``nodes``. Raises InputProblem with the line."""
    if not value.is_mapping:
        return _checked(value, value.word("none", "auto", "slurm", "systemd"), ())
    found = value.fields({"service": lambda row: row.word("none", "slurm", "systemd"), "nodes": _nodes})
    return _checked(value, found.get("service", "none"), found.get("nodes", ()))


def _checked(value: Value, service: str, nodes: tuple[str, ...]) -> Imex:
    if service == "systemd" and not nodes:
        raise value.problem("service systemd needs nodes: the addresses of every node of the NVLink domain")
    if nodes and service != "systemd":
        raise value.problem(f"nodes are for service systemd; with {service} gpucheck writes no list")
    return msgspec.convert({"service": "none" if service == "auto" else service, "nodes": nodes}, Imex)


def _nodes(value: Value) -> tuple[str, ...]:
    return tuple(_address(row) for row in value.items(MOST_NODES))


def _address(value: Value) -> str:
    text = value.text().strip()
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        why = f"{text!r} is not an IP address; the daemon needs addresses, one for each node"
        raise value.problem(why) from None


def imex_service(spec: Imex) -> dict[str, Any]:
    """Return the row of the plan. leave: the program that starts it for a job also stops it."""
    if spec.service == "systemd":
        return {"name": SERVICE, "enabled": True, "state": "started"}
    return {"name": SERVICE, "enabled": False, "state": "stopped" if spec.service == "none" else "leave"}


def imex_files(spec: Imex) -> Iterator[tuple[str, str]]:
    if spec.service == "systemd":
        yield NODES, "".join(f"{node}\n" for node in spec.nodes)


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
    live += [{"path": path, "value": value, "name": SYSFS_NAMES[path]} for path, value in _sysfs(spec)]
    return {"files": wanted, "live": live, **({"boot": boot} if boot else {})}


SYSFS_NAMES = {THP: "transparent huge pages", GOVERNORS: "the CPU governor"}


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
ACS_SERVICE = "gpucheck-acs-off"
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
    return {
        "packages": [{"name": "pciutils", "version": None, "spec": "pciutils"}],
        # A package of the system: it is upgraded with it.
        "holds": [],
        "files": [
            {"path": PROGRAM, "content": SCRIPT, "mode": "0755"},
            {"path": f"/etc/systemd/system/{ACS_SERVICE}.service", "content": UNIT, "mode": "0644"},
        ],
        "services": [{"name": ACS_SERVICE, "enabled": True, "state": "started"}],
    }
