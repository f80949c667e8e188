"""Settings of the specification that choose no version, and the files that carry them out.

Of the driver: its components (NVENC, MPS, OpenGL and others, at its version), module options, the key that signs the
module where secure boot is on (MOK), IMEX.

``tuning``: host settings for training, off by default. Settings for bare metal that disable isolation (IOMMU, ACS) are
not part of ``recommended``: the specification must name them, and the role fails on a virtual machine. Kernel arguments
are set in the boot loader, ACS by a service that runs at every boot.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from gpucheck.foreign.written import Hooks, Misplaced, choose, did_you_mean, is_unknown, known, whole
from gpucheck.knowledge.packages import DriverExtra, options
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.packages import Package, PlanGap, at_driver_version, fabric_packages, text_of
from gpucheck.stack.types import StackSet


def instead(**values: Any) -> Callable[[str], Any]:
    """Words that stand for a block."""
    return lambda text: values[choose(text, values)]


def _component(name: str) -> str:
    if name not in options().driver_extra:
        raise ValueError(f"{name!r} is not a driver component. {did_you_mean(name, options().driver_extra)}")
    return name


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
        message = f"the packages of driver_extra {name} on {system.name} with driver branch {branch} are not known"
        raise PlanGap(message, "cuda-repo", f"driver_extra without {name} in stack.yml")
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


def _module_options(found: dict[str, Any]) -> dict[str, Any]:
    for name in found:
        if not NAME.fullmatch(name):
            raise Misplaced(name, "is not an nvidia module option: these begin with NVreg_ (modinfo nvidia lists them)")
    return found


def _option(text: str) -> str:
    if not VALUE.fullmatch(text):
        raise ValueError(f"{text!r} is not valid in a modprobe file: use a number, a word, or name=value;...")
    return text


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


def _mok(found: dict[str, Any]) -> dict[str, Any]:
    for name in Mok.__struct_fields__:
        if set(found) <= set(Mok.__struct_fields__) and is_unknown(found.get(name, "")):
            raise ValueError(f"{name} is missing: DKMS signs with a key and its certificate")
    return found


def host_path(text: str) -> str:
    """A path of a file on the hosts."""
    if not SAFE.fullmatch(text):
        raise ValueError(f"{text!r} is not an absolute path of letters, digits and . _ + - on the hosts")
    return text


def mok_file(mok: Mok) -> str:
    return f"mok_signing_key={mok.key}\nmok_certificate={mok.certificate}\n"


# The list must be the same on every node of a domain. Slurm's prolog writes it for each job and starts the daemon.
# NVIDIA's DRA driver runs its daemon in a container, and a second one on the host would conflict with it.
SERVICE = "nvidia-imex"
NODES = "/etc/nvidia-imex/nodes_config.cfg"


class Imex(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """stack.yml's ``imex``. nodes: addresses of every node of the domain, for systemd alone."""

    service: Literal["none", "slurm", "systemd"] = "none"
    nodes: tuple[str, ...] = ()


def _imex(given: dict[str, Any]) -> dict[str, Any]:
    found = known(given)
    service, nodes = found.get("service", "none"), found.get("nodes")
    if service == "systemd" and not nodes:
        raise ValueError("service systemd needs nodes: the addresses of every node of the NVLink domain")
    if service != "systemd" and nodes:
        raise ValueError(f"nodes are for service systemd; with {service} gpucheck writes no list")
    return found


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueError(f"{text!r} is not an IP address; the daemon needs addresses, one for each node") from None


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


def _count(text: str) -> str:
    return LEAVE if text == LEAVE else str(whole(0, LARGEST)(text))


def _values(text: str) -> str:
    if not text.split():
        raise ValueError("a kernel setting needs a value")
    return " ".join(text.split())


def _sysctl(found: dict[str, Any]) -> dict[str, Any]:
    for key in found:
        if "." not in key or not key.replace(".", "").replace("_", "").replace("-", "").isalnum():
            raise Misplaced(key, "is not a kernel setting: write it as sysctl does, for example vm.swappiness")
    return found


SETTINGS: Hooks = {
    "driver_extra": instead(none=[], auto=[]),
    "driver_extra[]": _component,
    **dict.fromkeys(("module_options", "mok"), instead(none={}, auto={})),
    "module_options.*": _option,
    "mok.key": host_path,
    "mok.certificate": host_path,
    "imex": lambda text: _imex({"service": instead(none="none", auto="none", slurm="slurm", systemd="systemd")(text)}),
    "imex.nodes[]": _address,
    "tuning": instead(none={}, auto={}, recommended=msgspec.structs.asdict(RECOMMENDED)),
    "tuning.hugepages": _count,
    "tuning.nofile": _count,
    # The kernel shows tabs between several values, and any space would do.
    "tuning.sysctl.*": _values,
}
SETTING_BLOCKS: Hooks = {
    "module_options": _module_options,
    "mok": _mok,
    "imex": _imex,
    "tuning": known,
    "tuning.sysctl": _sysctl,
}
"""How the settings of stack.yml are read."""


def tuning_plan(spec: Tuning, arch: str = "x86_64") -> dict[str, Any] | None:
    """Return the plan's ``tuning``: persistent files, and values to set immediately if the host allows it.

    live: path (a pattern), value, and the name of the setting. boot: see ``kernel_arguments``; omitted if none is
    requested. None: no setting is requested. Raises PlanGap.
    """
    boot = kernel_arguments(spec.iommu, arch)
    keys = {
        **({"kernel.numa_balancing": "0"} if spec.numa_balancing == "off" else {}),
        **({"vm.nr_hugepages": spec.hugepages} if spec.hugepages != LEAVE else {}),
        **spec.sysctl,
    }
    pairs = ((THP, spec.transparent_hugepages), (GOVERNORS, spec.governor))
    sysfs = [(path, value) for path, value in pairs if value != LEAVE]
    limits = [(item, value) for item, value in (("memlock", spec.memlock), ("nofile", spec.nofile)) if value != LEAVE]
    # limits.d applies to logins only, where * includes all users except root; services have the manager's defaults.
    defaults = [f"DefaultLimit{item.upper()}={value.replace('unlimited', 'infinity')}" for item, value in limits]
    lines = {
        SYSCTL: [f"-{key} = {value}" for key, value in keys.items()],
        TMPFILES: [f"w {path} - - - - {value}" for path, value in sysfs],
        LIMITS: [f"{who} - {item} {value}" for item, value in limits for who in ("*", "root")],
        MANAGER: ["[Manager]", *defaults] if defaults else [],
    }
    head = "# Written by gpucheck: tuning in stack.yml\n"
    files = [
        {"path": path, "content": head + "\n".join(some) + "\n", "mode": "0644"} for path, some in lines.items() if some
    ]
    if not files and not boot:
        return None
    live = [
        {"path": f"/proc/sys/{key.replace('.', '/')}", "value": value, "name": key}
        for key, value in keys.items()
        # Fragmented memory gives fewer pages than requested, so they are reserved at boot.
        if key != "vm.nr_hugepages"
    ]
    live += [{"path": path, "value": value, "name": SYSFS_NAMES[path]} for path, value in sysfs]
    return {"files": files, "live": live, **({"boot": boot} if boot else {})}


SYSFS_NAMES = {THP: "transparent huge pages", GOVERNORS: "the CPU governor"}


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


def kernel_arguments(iommu: str, arch: str) -> dict[str, Any] | None:
    """Return the plan's ``tuning.boot``: the kernel's arguments, and grub's file for them on Debian's family.

    None: the IOMMU is unmanaged. Raises PlanGap if no argument is known.
    """
    if iommu == "leave":
        return None
    arguments = ARGUMENTS[arch].get(iommu)
    if arguments is None:
        message = f"no kernel argument is known that makes the IOMMU {iommu} on {arch}"
        raise PlanGap(message, "kernel-parameters", "set tuning: {iommu: passthrough}, or remove the setting")
    content = GRUB_FILE.format(arguments=" ".join(arguments))
    return {"arguments": list(arguments), "grub": {"path": GRUB, "content": content, "mode": "0644"}}


def acs_component() -> dict[str, Any]:
    # In the script: six bytes into the capability is its control register; without the capability nothing is to clear.
    unit = f"/etc/systemd/system/{ACS_SERVICE}.service"
    return {
        "packages": [{"name": "pciutils", "version": None, "spec": "pciutils"}],
        # A package of the system: it is upgraded with it.
        "holds": [],
        "files": [
            {"path": PROGRAM, "content": text_of("acs-off.sh"), "mode": "0755"},
            {"path": unit, "content": text_of("acs-off-service.txt"), "mode": "0644"},
        ],
        "services": [{"name": ACS_SERVICE, "enabled": True, "state": "started"}],
    }
