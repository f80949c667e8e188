"""The components of a plan, the roles that apply them, and the sources that it needs: archive, module stream."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from packaging.version import Version

from gpucheck.knowledge.packages import Archive, HeaderPackages, packages, ubuntu
from gpucheck.knowledge.tables import OperatingSystem, is_recorded, nearest, recorded
from gpucheck.stack.components import BY_NAME, BY_TURN, COMPONENTS
from gpucheck.stack.packages import PlanGap, uname_arch
from gpucheck.stack.rules.archive import SOURCE, UBUNTU, archive_of, ubuntu_system, unrecorded
from gpucheck.stack.spec import StackSpec
from gpucheck.stack.stack_set import StackSet
from gpucheck.stack.types import PlanInput, Reason, Unconfirmed
from gpucheck.stack.versions import parse


def planned_components(plan: PlanInput) -> dict[str, dict[str, Any]]:
    """Return packages, holds and more by component; a component can be planned with another. Raises PlanGap.

    Components that are not optional are always included, without packages if they are not requested.
    """
    found: dict[str, dict[str, Any]] = {}
    for row in COMPONENTS:
        part = row.packages(plan)
        if part is not None:
            both = found.get(row.part, {"packages": [], "holds": []})
            found[row.part] = {**both, **part, **{key: [*both[key], *part[key]] for key in both}}
    return found


def roles(parts: Iterable[str]) -> tuple[str, ...]:
    """Return the roles in their order: later ones depend on earlier ones, and the driver's role reboots.

    Components at the driver's version are installed with it, in one transaction.
    """
    return tuple(name for name in parts if BY_NAME[name].default is not None or BY_NAME[name].optional)


def module_stream(system: OperatingSystem, stack: StackSet) -> dict[str, str] | None:
    """Return the stream of NVIDIA's dnf module with the driver, None if the system has no streams."""
    streams = packages().module_streams
    if stack.driver.kept:
        return None
    if system.family != "redhat" or int(system.version) not in streams.el_majors:
        return None
    kind = "open" if stack.driver.kernel_module == "open" else "dkms"
    return {"module": streams.module, "stream": f"{stack.driver.branch}-{kind}"}


def archive_of_set(system: OperatingSystem, stack: StackSet) -> Archive | None:
    """Return the archive of the set, None for NVIDIA's repositories. Raises PlanGap for an edited lock."""
    archive = archive_of(system, stack)
    if archive is not None or stack.source != "debian":
        return archive
    raise PlanGap(f"the archive of {system.name} is not known", SOURCE, "source: nvidia in stack.yml")


def host_sources(system: OperatingSystem, stack: StackSet, archive: Archive | None) -> dict[str, Any] | None:
    """Return the package sources of the host that the plan needs: components of one suite and its updates, or None.

    distribution: whose archive it is, omitted for Debian.
    """
    if archive is not None:
        return {"suite": archive.suite, "components": list(archive.components)}
    row = ubuntu_system(system) if stack.source == UBUNTU else None
    if row is None:
        return None
    return {"suite": row.suite, "components": list(ubuntu().components), "distribution": UBUNTU}


def unconfirmed(plan: PlanInput) -> tuple[Unconfirmed, ...]:
    """Return the repository directory, module stream and packages without a record. Raises PlanGap."""
    system, stack, folder = plan.system, plan.stack, plan.system.repository or ""
    found = [] if plan.archive else [*_folder(folder, stack.arch), *_stream(system, folder, stack)]
    for row in COMPONENTS:
        part, where = row.packages(plan), row.folder(plan)
        if part is not None and stack.source == UBUNTU and UBUNTU in row.in_archive:
            found += unrecorded(row.part, stack, part["packages"])
        if part is None or where is None:
            continue
        for package in part["packages"]:
            name, version = package["name"], package["version"]
            # Packages that are not held belong to the system.
            if name in part["holds"] and not is_recorded(where, stack.arch, name, version):
                because = _because(where, stack.arch, name, version)
                found.append(Unconfirmed(component=row.part, spec=package["spec"], because=because))
    return tuple(found)


def reasons(rows: tuple[Unconfirmed, ...]) -> tuple[Reason, ...]:
    """Return the same as reasons, one for each component and source."""
    by_part: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        by_part.setdefault((row.component, row.source), []).append(row.spec)
    texts = {key: f"unconfirmed, no record shows {', '.join(specs)}" for key, specs in by_part.items()}
    return tuple(Reason(component=p, because=text, source=s, confirmed=False) for (p, s), text in texts.items())


def _folder(folder: str, arch: str) -> Iterator[Unconfirmed]:
    if arch not in recorded().folders.get(folder, {}) and arch not in packages().folders.get(folder, {}):
        because = "no record shows this directory for this architecture"
        yield Unconfirmed(component="repositories", spec=f"directory {folder}/{arch}", because=because)


def _stream(system: OperatingSystem, folder: str, stack: StackSet) -> Iterator[Unconfirmed]:
    stream = module_stream(system, stack)
    if stream and stream["stream"] not in recorded().streams.get(folder, ()):
        because = f"no record shows this module stream in {folder}"
        yield Unconfirmed(component="driver", spec=f"{stream['module']}:{stream['stream']}", because=because)


def _because(folder: str, arch: str, name: str, version: str | None) -> str:
    text = f"no record shows it in {folder} for {arch}"
    near = nearest(folder, arch, name, version) if version else ""
    return f"{text}; recorded in {near}" if near else text


# A golden image starts the same units on nodes without GPUs, where each daemon fails and systemd reports the host as
# degraded. The condition checks the hardware: PCI devices are present before the first unit starts. A condition on the
# driver (/dev/nvidiactl, /sys/module/nvidia) would not work: udev loads the module while units start, systemd evaluates
# a condition only once, and a GPU host would sometimes boot without persistence or fabric.
UNITS = "/etc/systemd/system"
NVIDIA = "0x10de"
SIMULATED_ROOT = "/run/gpucheck-simulator/root"
PROBE = f"{UNITS}/gpucheck-hardware.service"
# In a directory that a reboot clears, so that it describes the hardware of this boot.
FOUND = "/run/gpucheck/nvidia-device"
HEAD = "# Written by gpucheck: skipped without an NVIDIA device, restarted while the driver loads.\n"
# The module may still be loading when the daemon is first started. Twelve attempts take at least a minute; a
# later failure is not a race, and systemd shows the unit as failed. The counter restarts two minutes after the first.
PATIENCE = "StartLimitIntervalSec=120\nStartLimitBurst=12\n"
RETRY = "Restart=on-failure\nRestartSec=5s\n"


def services(stack: StackSet, spec: StackSpec) -> Iterator[dict[str, Any]]:
    """Yield the units, in the order in which they are started."""
    return (service for row in BY_TURN for service in row.services(stack, spec))


def drop_ins(names: list[str], system: OperatingSystem, *, simulated: bool) -> list[tuple[str, str]]:
    """Return (path, content) of one drop-in for each service, and of an additional unit if they need one.

    simulated: the hosts' hardware is the simulator's, and so is the PCI bus that the condition reads.
    """
    test = f"grep -qsx {NVIDIA} {SIMULATED_ROOT if simulated else ''}/sys/bus/pci/devices/*/vendor"
    if not _old_systemd(system):
        content = _unit(["After=systemd-modules-load.service"], [f"ExecCondition=/bin/sh -c '{test}'"])
        return [(_path(name), content) for name in names]
    condition = [f"ConditionPathExists={FOUND}", "Wants=gpucheck-hardware.service"]
    condition += ["After=systemd-modules-load.service gpucheck-hardware.service"]
    return [(PROBE, _probe(test)), *((_path(name), _unit(condition, [])) for name in names)]


def _old_systemd(system: OperatingSystem) -> bool:
    """Return whether systemd lacks ExecCondition, added in 243: EL 8 has 239 and ignores it with a warning.

    There a separate unit looks for the device first, and a plain condition depends on its result. Every other system in
    the tables has 245 or newer: the condition is in the drop-in itself, and its failure is logged.
    """
    return system.family == "redhat" and int(system.version) <= 8


def _path(name: str) -> str:
    return f"{UNITS}/{name}.service.d/10-gpucheck.conf"


def _unit(unit: list[str], service: list[str]) -> str:
    return HEAD + "\n".join(["[Unit]", *unit, PATIENCE, "[Service]", *service, RETRY])


def _probe(test: str) -> str:
    """Return the unit that looks for devices at each start of a service that wants it. No device is not a failure."""
    found = f"mkdir -p {FOUND.rpartition('/')[0]} && touch {FOUND}"
    return (
        "# Written by gpucheck: systemd 239 has no ExecCondition.\n"
        "[Unit]\nDescription=Look for NVIDIA devices on the PCI bus\n\n"
        f"[Service]\nType=oneshot\nExecStart=-/bin/sh -c '{test} && {found}'\n"
    )


def release_packages(system: OperatingSystem) -> tuple[str, ...]:
    """Return the package of the system's sources that adds EPEL; empty if they have no such package."""
    name = packages().epel.release_packages.get(system.os_id)
    return (name.format(major=system.version),) if name and system.family == "redhat" else ()


def epel_row(system: OperatingSystem, arch: str) -> dict[str, Any] | None:
    """Return EPEL as a repository of the plan, for DKMS alone and with its pinned key; None on other families."""
    table = packages().epel
    if system.family != "redhat" or system.version not in table.fingerprints:
        return None
    values = {"major": system.version, "uname_arch": uname_arch(arch)}
    return {
        "name": table.name,
        "kind": "dnf",
        "url": table.url.format(**values),
        "key_url": table.key_url.format(**values),
        "key_fingerprint": table.fingerprints[system.version],
        "signed": table.signed,
        "include": list(table.include),
    }


def system_repositories(system: OperatingSystem, arch: str) -> list[str]:
    """Return repositories of the system to enable: CRB, by its name on this system."""
    table = packages().epel
    older = table.enable_el8 if system.version == "8" else {}
    name = older.get(system.os_id) or table.enable.get(system.os_id)
    return [name.format(major=system.version, uname_arch=uname_arch(arch))] if name else []


def python(system: OperatingSystem) -> dict[str, Any]:
    """Return the interpreter of gpucheck's environment, and the system's packages that install it."""
    table = packages().python
    newer = system.family == "redhat" and int(system.version) in table.el_majors
    if not newer:
        return {"interpreter": "python3", "packages": []}
    return {"interpreter": table.interpreter, "packages": list(table.packages)}


# EL's real-time kernels before the plus: 4.18.0-553.rt7.342.el8_10.x86_64.
OLD_RT = re.compile(r"\.rt\d")


def headers(system: OperatingSystem, kernels: Iterable[str]) -> tuple[str, ...]:
    """Return header packages for kernels like ``5.14.0-503.el9.aarch64+64k``. Raises PlanGap for unknown variants."""
    return tuple(name for kernel in sorted(set(kernels)) for name in _headers(system, kernel))


def header_metapackage(system: OperatingSystem, kernels: Iterable[str], *, held: bool) -> str | None:
    """Return the pattern of the package that installs headers with each later kernel. None: not needed.

    On the EL family, kernel-devel-matched depends on kernel-core. held: upgrades install no other kernel.
    """
    needed = system.family == "debian" and not held and any(kernels)
    return packages().headers.debian_metapackage if needed else None


def _headers(system: OperatingSystem, kernel: str) -> list[str]:
    table = packages().headers
    if system.family == "debian":
        return [pattern.format(kernel=kernel) for pattern in table.debian]
    if "uek" in kernel:
        return [pattern.format(kernel=kernel) for pattern in table.oracle_uek]
    base, _, variant = kernel.partition("+")
    patterns = _el_patterns(system, table, "rt" if OLD_RT.search(kernel) else variant)
    if patterns is None:
        message = f"the packages with the headers of kernel {kernel} are not known"
        advice = f"boot a kernel of the system without a variant, or with one of {', '.join(table.el_variants)}"
        raise PlanGap(message, "el-kernel-packages", advice)
    return [pattern.format(kernel=base) for pattern in patterns]


def _el_patterns(system: OperatingSystem, table: HeaderPackages, variant: str) -> tuple[str, ...] | None:
    if variant:
        return table.el_variants.get(variant)
    return table.el8 if system.version == "8" else table.el


def compilers(system: OperatingSystem, kernel_module: str, kernels: Iterable[str]) -> tuple[str, ...]:
    """Return compilers from the system's sources, for the modules and as the kernels were built."""
    table = packages().compilers
    found = list(table.open_modules[system.family]) if kernel_module == "open" else []
    for row in table.kernels:
        if row.os == system.id and any(_release(kernel) >= parse(row.first) for kernel in kernels):
            found += row.packages
    return tuple(found)


def _release(kernel: str) -> Version:
    numbers = re.match(r"\d+\.\d+", kernel)
    return parse(numbers[0] if numbers else "0")
