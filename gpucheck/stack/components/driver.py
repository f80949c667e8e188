"""The driver: its branch and release, its packages, and the files that every GPU host gets with it.

``driver: keep``: the driver that a host has, such as the archive's, of a runfile, or of a vendor's image. The set is
chosen for it; its packages, files and services, the fabric manager and the kernel's arguments stay as they are.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from gpucheck.knowledge import tables
from gpucheck.knowledge.packages import Archive, packages
from gpucheck.knowledge.tables import Branch, OperatingSystem
from gpucheck.stack import packages as rows
from gpucheck.stack.components.base import MANAGED, SYSTEM, Choice, Component, Works
from gpucheck.stack.components.kernel_module import r14_flavour
from gpucheck.stack.facts import HostFacts
from gpucheck.stack.rules import archive as archive_rules
from gpucheck.stack.rules import driver as rules
from gpucheck.stack.rules.driver import r24_branch
from gpucheck.stack.settings import MODULE_OPTIONS, MOK, extra_packages, mok_file, options_line
from gpucheck.stack.types import (
    KEEP,
    Clash,
    DriverChoice,
    Fact,
    PlanInput,
    Reason,
    Reasons,
    StackSet,
    StackSpec,
    Target,
)
from gpucheck.stack.versions import request

Found = tuple[DriverChoice, Reasons]
# nova_core is its successor, which kernels 7.0 of Ubuntu have: it holds Turing, Ampere and Ada (Launchpad bug 2150845).
NOUVEAU = "blacklist nouveau\noptions nouveau modeset=0\nblacklist nova_core\nblacklist nova_drm\n"

VERSION = re.compile(r"\d{3}(\.\d{1,3}){1,2}")
STATED = "the specification"
WAY = "install a driver of your own, and run again; or state a driver in stack.yml, which gpucheck installs"
# Keys of stack.yml that belong to the driver, with what they are without a statement.
OF_THE_DRIVER = {"kernel_module": "auto", "driver_extra": (), "module_options": {}}
# A repository of NVIDIA's has the driver as well: these stay away from the system's own upgrades.
KEPT_EXCLUDE = (
    "nvidia-driver* nvidia-open* kmod-nvidia* nvidia-kmod* nvidia-fabric* nvidia-persistenced nvidia-modprobe "
    "nvidia-settings nvidia-xconfig libnvidia-cfg* libnvidia-fbc* libnvidia-gpucomp* libnvidia-ml* libnvidia-nscq* "
    "libnvsdm* cuda-drivers* nvidia-imex* xorg-x11-nvidia"
)


def present_driver(host: HostFacts) -> DriverChoice | str:
    """Return the driver of a host, or why it cannot be kept."""
    seen = host.driver
    version, flavour = seen.loaded_version or seen.installed_version, seen.loaded_flavour or seen.installed_flavour
    if not version or flavour not in ("open", "proprietary"):
        return f"{host.host} has no NVIDIA driver that could be kept: no module is loaded and none is installed"
    if not VERSION.fullmatch(version):
        return f"the version of the driver of {host.host} is {version[:40]!r}"
    if seen.loaded_version and seen.installed_version and seen.loaded_version != seen.installed_version:
        return (
            f"driver {seen.loaded_version} is loaded on {host.host} and {seen.installed_version} is installed: the "
            "next boot changes it"
        )
    kind: rules.Flavour = "open" if flavour == "open" else "proprietary"
    return DriverChoice(branch=version.partition(".")[0], version=version, kernel_module=kind, kept=True)


def kept(target: Target, spec: StackSpec) -> Iterator[tuple[DriverChoice, tuple[Reason, ...]]]:
    if spec.driver == KEEP and target.present:
        text = "the driver of the hosts, which is kept: its packages, services and fabric manager are not managed"
        yield target.present, (Reason(component="driver", because=text, source="the facts"),)


def nothing_to_keep(target: Target) -> Iterator[Clash]:
    if target.present is None:
        because = "driver: keep plans for the driver that a host has, and no host was read"
        between = (Fact("driver: keep is requested", STATED), Fact("the driver is not known", "the facts"))
        way = "give the facts of the hosts (gpucheck stack lock --facts), or state a driver"
        yield Clash(component="driver", rule="", between=between, because=because, way=way)


def keep_contradictions(spec: StackSpec) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the stated keys that would change the driver."""
    if spec.driver != KEEP:
        return
    because = "it belongs to the driver, which keep does not change. Leave it out, or state a driver"
    for key, unset in OF_THE_DRIVER.items():
        if getattr(spec, key) != unset:
            yield ("driver", key), because
    if spec.source not in ("auto", "nvidia"):
        yield ("driver", "source"), f"{spec.source} is where the driver comes from. Leave it out, or state a driver"
    if spec.mok.key:
        yield ("driver", "mok"), because
    if spec.imex.service != "none":
        yield ("driver", "imex"), because
    if spec.tuning.iommu != "leave":
        yield ("driver", "tuning"), "iommu changes the kernel's arguments, which keep does not. Leave it out"


def branches(spec: StackSpec, archive: Archive | None) -> tuple[Branch, ...]:
    """Return the branches to try, best first; with an archive, the branch of the archive; none for a kept driver."""
    if spec.driver == KEEP:
        return ()
    if archive is None:
        return rules.r18_branches(spec.prefer, spec.driver)
    number = archive.driver.partition(".")[0]
    return tuple(branch for branch in tables.drivers().branches if branch.branch == number)


def of_branch(target: Target, spec: StackSpec, branch: Branch, archive: Archive | None) -> Found | Clash:
    """Return the driver of one branch with its flavor, or the clash of the first rule that forbids the branch."""
    for check in (
        *(rules.r4_r9_branch_window(gpu, branch.branch) for gpu in target.models),
        rules.r15_kernel(target.os, branch),
    ):
        if check:
            return check
    if archive is not None:
        return archive_rules.archive_driver(spec.driver, branch, archive)
    missing = r24_branch(target, branch) if spec.source != archive_rules.UBUNTU else None
    if missing:
        return missing
    flavour = r14_flavour(target, spec.kernel_module, branch)
    if isinstance(flavour, Clash):
        return flavour
    version, reason = rules.r18_version(branch, spec.driver)
    early = next(filter(None, (rules.r9_first_release(gpu, version) for gpu in target.models)), None)
    if early:
        return early
    revision = request(spec.driver).package_revision or None
    choice = DriverChoice(branch=branch.branch, version=version, kernel_module=flavour, revision=revision)
    origin = archive_rules.r22_ubuntu_branch(target, spec, branch)
    return choice, (reason, *origin, *_driver_reasons(target, branch, choice))


def _driver_reasons(target: Target, branch: Branch, choice: DriverChoice) -> Iterator[Reason]:
    last = next((gpu for gpu in target.models if gpu.last_driver_branch), None)
    if last:
        text = f"{rules.is_a(last)}: branch {last.last_driver_branch} is its last"
        yield Reason(component="driver", because=text, rule="R9", source="arch-matrix")
    weak = next(
        (gpu for gpu in target.models if gpu.first_driver.branch == branch.branch and gpu.first_driver.is_ != "proven"),
        None,
    )
    if weak:
        text = f"that branch {branch.branch} drives {weak.name} is {weak.first_driver.is_}"
        yield Reason(component="driver", because=text, rule="R9", source="open-gkm", confirmed=False)
    if branch.state == "eol":
        ended = ", ".join(f"{date} according to {who.replace('_', ' ')}" for who, date in branch.eol.items())
        because = f"branch {branch.branch} has ended ({ended}); it is used because it was requested"
        yield Reason(component="driver", because=because, rule="R18", source="endoflife", confirmed=False)
    needs = next((gpu for gpu in target.models if gpu.kernel_module == choice.kernel_module), None)
    if needs:
        text = f"{rules.is_a(needs)} and needs the {choice.kernel_module} modules"
    else:
        text = "every GPU here can use either flavor; open is NVIDIA's default from branch 560"
        if choice.kernel_module == "proprietary":
            text = "proprietary: requested, or safer for this GPU on an old branch"
    yield Reason(component="kernel_module", because=text, rule="R14", source="driver-install-guide, open-gkm")
    if target.os.id in tables.drivers().not_listed_by_nvidia:
        text = f"NVIDIA does not list {target.os.name}; its packages for {target.os.repository} are used, built by DKMS"
        yield Reason(component="driver", because=text, rule="R15", source="driver-install-guide", confirmed=False)


def no_branch(wanted: str) -> Clash:
    known = ", ".join(b.branch for b in tables.drivers().branches if b.state == "supported" and b.last)
    between = (
        Fact(f"driver {wanted} is requested", "the specification"),
        Fact(f"the branches known to be supported are {known}", "nv-supported-drivers-620, endoflife"),
    )
    return Clash(component="driver", rule="R18", between=between, because=f"no driver {wanted} is known", unknown=True)


class Driver(Component):
    """The driver; all other components are chosen to fit it."""

    name = title = part = "driver"
    place, turn = 10, 0
    nvidia = SYSTEM
    in_archive = ("debian", "ubuntu")
    default = "auto"

    def check(self, value: str) -> None:
        if value == "none":
            raise ValueError(
                "'none' is not possible: a GPU host needs a driver. State auto, keep, a branch or a version."
            )
        request(value)

    def contradictions(self, spec: StackSpec) -> Iterator[tuple[tuple[str, str], str]]:
        return keep_contradictions(spec)

    def host_clashes(self, target: Target, spec: StackSpec, archive: Archive | None) -> Iterator[Clash]:
        old = rules.end_of_life(target.os, tables.operating_systems().as_of)
        if old and spec.end_of_life_os == "refuse":
            yield old
        if target.os.explicit_only and not (request(spec.driver).explicit and request(spec.cuda).explicit):
            one = Fact(target.os.explicit_only, "driver-install-guide")
            other = Fact("driver and cuda are auto", "the specification")
            because = f"on {target.os.name} the specification must state driver and cuda"
            yield Clash(component="os", rule="R15", between=(one, other), because=because)
        if spec.driver == KEEP:
            yield from nothing_to_keep(target)
            return
        yield from filter(None, (rules.r20_architecture(target), *map(rules.r9_architecture_ended, target.models)))
        flavour = r14_flavour(target, spec.kernel_module)
        if isinstance(flavour, Clash):
            yield flavour
        yield from archive_rules.r22_host(target, spec)
        yield from archive_rules.r22_ubuntu_host(target, spec)
        if archive is not None and spec.driver_extra:
            because = f"the packages of driver_extra in the archive of {archive.os} are not known"
            stated = Fact(f"driver_extra is {', '.join(spec.driver_extra)}", "the specification")
            between = (stated, Fact(because, archive_rules.SOURCE))
            yield Clash(component="driver", rule="R22", between=between, because=because, unknown=True)

    def choose(self, choice: Choice) -> DriverChoice:
        return choice.driver

    def value(self, stack: StackSet) -> str:
        return stack.driver.version

    def exact(self, stack: StackSet) -> str:
        return KEEP if stack.driver.kept else _exact(stack.driver)

    def group_suffix(self, target: Target) -> str:
        """Return the suffix for hosts that keep their driver: each version and flavor has a set of its own."""
        kept = target.present
        return f"-driver{kept.version}-{kept.kernel_module}" if kept else ""

    def label(self, stack: StackSet) -> str:
        origin = ", from the distribution's own archive" if stack.source else ""
        driver = stack.driver
        if driver.kept:
            return f"{driver.version}  {driver.kernel_module} kernel modules, kept: not managed"
        return f"{_exact(driver)}  {driver.kernel_module} kernel modules, branch {driver.branch}{origin}"

    def advice(self, rule: str, target: Target, spec: StackSpec, works: Works) -> str | None:
        ended = (b.branch for b in reversed(tables.drivers().branches) if b.state == "eol") if rule == "R15" else ()
        for branch in ended:
            if works(target, msgspec.structs.replace(spec, driver=branch)):
                return f"a newer system; or driver {branch}, whose support has ended, at your own risk"
        return None

    def packages(self, plan: PlanInput) -> dict[str, Any]:
        system, stack = plan.system, plan.stack
        if stack.driver.kept:
            return rows.component([])
        held = archive_rules.archive_packages(plan)
        if held is not None:
            return rows.component(held)
        own = _packages(system, stack)
        names = {row["name"] for row in own}
        extra = extra_packages(system, stack, plan.spec.driver_extra)
        return rows.component([*own, *(row for row in extra if row["name"] not in names)])

    def services(self, stack: StackSet, spec: StackSpec) -> Iterator[dict[str, Any]]:
        if not stack.driver.kept:
            yield from rows.started(["nvidia-persistenced"])

    def files(self, plan: PlanInput) -> Iterator[dict[str, Any]]:
        """Yield files that block nouveau and nova, set module options, and keep the driver at its version."""
        if plan.stack.driver.kept:
            yield from _held(rows.text_of("pin-kept.txt")) if plan.apt else ()
            return
        yield rows.file("/etc/modprobe.d/gpucheck-nouveau.conf", NOUVEAU, initramfs=True)
        if plan.spec.module_options:
            content = options_line(plan.spec.module_options)
            yield rows.file(MODULE_OPTIONS, content, initramfs=True)
        if plan.spec.mok.key:
            yield rows.file(MOK, mok_file(plan.spec.mok))
        if plan.apt:
            # The pinning package does the same, but not yet while apt computes the transaction that installs it.
            yield from _held(rows.text_of("pin.txt").format(version=plan.stack.driver.version))

    def notes(self, plan: PlanInput) -> Iterator[Reason]:
        """Yield unconfirmed package names and keys; for an archive, that it replaces its release."""
        if plan.stack.source:
            yield from archive_rules.archive_notes(plan)
            return
        key = packages().repositories.keys[plan.system.repository or ""]
        known = () if MANAGED in plan.spec.repositories else (("repositories", key.unconfirmed),)
        by_rule = None if plan.stack.driver.kept else rows.revision_by_rule(plan.system, plan.stack)
        yield from (by_rule,) if by_rule else ()
        own = () if plan.stack.driver.kept else ((self.name, rows.driver_row(plan.system, plan.stack).unconfirmed),)
        for what, text in (*own, *known):
            if text:
                yield Reason(component=what, because=text, source="cuda-repo", confirmed=False)

    def expected(self, stack: StackSet) -> dict[str, str | None]:
        return {"driver_version": stack.driver.version, "kernel_module": stack.driver.kernel_module}


def _held(pin: str) -> Iterator[dict[str, Any]]:
    yield rows.file("/etc/apt/apt.conf.d/51gpucheck-nvidia", rows.text_of("unattended-upgrades.txt"))
    yield rows.file("/etc/apt/preferences.d/gpucheck-nvidia", pin)


def _exact(driver: DriverChoice) -> str:
    return f"{driver.version}-{driver.revision}" if driver.revision else driver.version


def _packages(system: OperatingSystem, stack: StackSet) -> list[rows.Package]:
    row = rows.driver_row(system, stack)
    values = {"version": stack.driver.version, "branch": stack.driver.branch}
    found = [rows.package(system, name.format(**values), None) for name in row.newest]
    return [*found, *(rows.at_driver_version(system, stack, name.format(**values)) for name in row.packages)]


COMPONENT = Driver()
