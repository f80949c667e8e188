"""Stack: are exactly the planned versions installed, and were the framework wheels built for this host?

Source: the plan that provisioning writes to the host, compared with dpkg or rpm, the loaded and the installed kernel
module, and the Python packages in gpucheck's environment. A version that changed by itself (an unattended upgrade, an
unpinned NCCL) shows here first.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec

from gpucheck.checks.software._wheel_findings import judge_wheels
from gpucheck.checks.software._wheels import FRAMEWORKS, Imported, Wheel, read_wheels
from gpucheck.knowledge import gpu_by_pci_id
from gpucheck.model import Check, DriverState, Finding, Host, NvmlReading, PackageVersion, Verdict
from gpucheck.model.about import About

NAME = "stack"
HOST = About(check=NAME)
PLAN = "/etc/gpucheck/stack.json"
FABRIC_MANAGER = "nvidia-fabricmanager"
PROVISION = "in a gpucheck checkout: make provision INVENTORY=..."


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The plan as text (None = none on this host) and what is installed.

    packages: None where the package database cannot be read.
    where: what the plan was read from. capabilities: compute capability by bus id of every GPU, None = not known.
    wheels, libraries: the frameworks that this interpreter can import, and the versions of their library wheels.
    """

    plan: str | None
    where: str
    packages: tuple[PackageVersion, ...] | None
    driver: DriverState
    arch: str
    capabilities: dict[str, str | None]
    wheels: tuple[Wheel, ...]
    libraries: dict[str, str]
    imported: Imported | None = None


class Package(msgspec.Struct, frozen=True):
    """A planned package. version: None for the newest of its repository."""

    name: str
    version: str | None


class Component(msgspec.Struct, frozen=True):
    """The packages of a component, and the names of those that are held."""

    packages: tuple[Package, ...]
    holds: tuple[str, ...] = ()


class Expected(msgspec.Struct, frozen=True):
    """What runs once the plan is carried out; None where the plan leaves it open."""

    driver_version: str | None = None
    kernel_module: str | None = None
    fabric_manager_version: str | None = None


class Framework(msgspec.Struct, frozen=True):
    """A planned framework. origin: ``index`` for wheels of its own index, which carry the build in their version."""

    version: str | None = None
    origin: str | None = None
    build: str | None = None


class Stack(msgspec.Struct, frozen=True):
    """The planned frameworks."""

    torch: Framework | None = None
    tensorflow: Framework | None = None


class Plan(msgspec.Struct, frozen=True, rename={"schema_": "schema"}):
    """The parts of a host's plan that are compared here."""

    schema_: Literal["gpucheck.plan/1"]
    components: dict[str, Component]
    expected: Expected | None = None
    stack: Stack | None = None


class Unreadable(ValueError):
    """The plan on the host is not a plan."""


def probe(host: Host, plan: str | None = None, where: str = PLAN, imported: Imported | None = None) -> Values:
    """Read the plan, then look for what it names.

    plan: another plan than the host's own, as JSON, read from ``where``. imported: what torch reported.
    """
    text = host.read_text(PLAN) if plan is None else plan
    try:
        plan_ = read_plan(text) if text is not None else None
        names = [package.name for part in plan_.components.values() for package in part.packages] if plan_ else []
    except Unreadable:
        names = []
    wheels, libraries = read_wheels(host)
    return Values(
        plan=text,
        where=where,
        packages=host.packages([*names, FABRIC_MANAGER]),
        driver=host.driver(),
        arch=host.system().arch,
        capabilities=_capabilities(host) if wheels else {},
        wheels=wheels,
        libraries=libraries,
        imported=imported,
    )


def _capabilities(host: Host) -> dict[str, str | None]:
    """By the PCI ids, so that no driver is needed; NVML is queried only for a GPU that the tables do not contain."""
    models = {device.bus_id: gpu_by_pci_id(device.device_id) for device in host.pci() if device.is_nvidia_gpu}
    found = {bus_id: model.compute_capability if model else None for bus_id, model in models.items()}
    if None in found.values():
        nvml = host.nvml()
        queried = {g.pci_bus_id: g.compute_capability for g in nvml.gpus} if isinstance(nvml, NvmlReading) else {}
        found = {bus_id: capability or queried.get(bus_id) for bus_id, capability in found.items()}
    return found


def evaluate(values: Values) -> Iterator[Finding]:
    """The packages of each component, the modules loaded and installed, fabric manager, and the frameworks."""
    yield from _planned(values)
    yield from judge_wheels(
        values.wheels,
        values.libraries,
        values.capabilities,
        values.driver.loaded_version,
        values.arch,
        values.imported,
    )


def _planned(values: Values) -> Iterator[Finding]:
    if values.plan is None:
        why = f"not applicable: {values.where} does not exist, this host was not provisioned from a lock"
        yield HOST.skips(why, "no plan")
        return
    try:
        plan = read_plan(values.plan)
    except Unreadable as problem:
        why = f"{values.where} cannot be read as a gpucheck.plan/1 document: {problem}"
        yield HOST.unknown(why, f"write it again: {PROVISION}")
        return
    if values.packages is None:
        why = "installed packages unknown: the package database cannot be read"
        yield HOST.unknown(why, "dpkg-query --list or rpm --query --all shows the error")
    else:
        yield from _components(plan, values.packages)
    yield from _module(plan, values.driver)
    yield from _fabric_manager(plan, values)
    yield from _frameworks(plan, {wheel.name: wheel.version for wheel in values.wheels})


def read_plan(text: str) -> Plan:
    """Return the plan that provisioning recorded. Raises Unreadable."""
    try:
        return msgspec.json.decode(text, type=Plan)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise Unreadable(str(error)) from error


def _components(plan: Plan, packages: tuple[PackageVersion, ...]) -> Iterator[Finding]:
    installed = {package.name: package for package in packages}
    for name, component in plan.components.items():
        if not component.packages:
            continue
        wrong, loose = [], []
        for row in component.packages:
            found = installed.get(row.name)
            # A plan without a version takes the newest of its repository and holds it.
            if found is None or row.version not in (None, found.version):
                planned = row.version or "any version"
                wrong.append(f"{row.name}: {found.version if found else 'not installed'}, planned {planned}")
            elif row.name in component.holds and not found.held:
                loose.append(f"{row.name} {found.version} is not held")
        yield _component(name, component.packages, wrong, loose)


def _component(component: str, rows: tuple[Package, ...], wrong: list[str], loose: list[str]) -> Finding:
    wanted = f"{len(rows)} packages as planned, held"
    if wrong:
        return Finding(
            check=NAME,
            verdict=Verdict.FAIL,
            subject="host",
            seen=f"{component}: {len(wrong)} of {len(rows)} packages differ",
            wanted=wanted,
            cause="library-mismatch",
            confidence="certain",
            why="; ".join(wrong),
            fix=f"install the planned versions again: {PROVISION}",
            evidence=tuple(wrong),
        )
    if loose:
        return Finding(
            check=NAME,
            verdict=Verdict.WARN,
            subject="host",
            seen=f"{component}: {len(loose)} packages can be upgraded by themselves",
            wanted=wanted,
            why="; ".join(loose),
            fix=f"apt-mark hold or dnf versionlock add; {PROVISION}",
            evidence=tuple(loose),
        )
    return Finding(
        check=NAME,
        verdict=Verdict.PASS,
        subject="host",
        seen=f"{component}: {', '.join(sorted({row.version or 'newest' for row in rows}))}",
        wanted=wanted,
        evidence=tuple(f"{row.name} {row.version}" for row in rows),
    )


def _module(plan: Plan, driver: DriverState) -> Iterator[Finding]:
    expected = plan.expected or Expected()
    version, flavour = expected.driver_version, expected.kernel_module
    if version is None:
        return
    seen = f"kernel module {driver.loaded_version or 'not loaded'} {driver.loaded_flavour or ''}".rstrip()
    wanted = f"kernel module {version} {flavour}"
    installed = f"{driver.installed_version or 'not found'} {driver.installed_flavour or ''}".rstrip()
    about = About(check=NAME, evidence=(f"installed module: {installed}",))
    if driver.loaded_version != version:
        cause, why = "driver-mismatch", "The planned kernel module is not the loaded one."
        fix = f"reboot; then {PROVISION}"
    elif flavour is not None and driver.loaded_flavour not in (None, flavour):
        cause, why = "module-flavour-wrong", "The other flavor of the kernel module is loaded."
        fix = f"install the planned flavor and reboot: {PROVISION}"
    elif driver.installed_version not in (None, version) or (
        flavour and driver.installed_flavour not in (None, flavour)
    ):
        cause = "driver-mismatch"
        why = f"The next boot loads {installed}."
        fix = f"install the planned module before the host reboots: {PROVISION}"
    else:
        yield about.passes(seen, wanted)
        return
    yield about.fails(seen, wanted, why, fix, cause)


def _fabric_manager(plan: Plan, values: Values) -> Iterator[Finding]:
    """Compared with the loaded module, not with the plan: it does not start at any other version."""
    if values.packages is None:
        return  # reported with the packages
    installed = next((p.version for p in values.packages if p.name == FABRIC_MANAGER), None)
    planned = (plan.expected or Expected()).fabric_manager_version
    loaded = values.driver.loaded_version
    if (installed is None and planned is None) or loaded is None:
        return  # a missing package is reported with its component, a missing module by itself
    plain = (installed or "not installed").rpartition(":")[2].partition("-")[0]
    seen, wanted = f"fabric manager {plain}", f"fabric manager {loaded}, the loaded driver's version"
    if plain == loaded:
        yield Finding(check=NAME, verdict=Verdict.PASS, subject="host", seen=seen, wanted=wanted)
        return
    yield Finding(
        check=NAME,
        verdict=Verdict.FAIL,
        subject="host",
        seen=seen,
        wanted=wanted,
        cause="fabric-version-mismatch",
        confidence="certain",
        why="Fabric manager works only at exactly the loaded driver's version.",
        fix=f"install both at the planned version and reboot: {PROVISION}",
        evidence=(f"package: {installed or 'not installed'}", f"planned: {planned or 'not in the plan'}"),
    )


def _frameworks(plan: Plan, python: dict[str, str]) -> Iterator[Finding]:
    for name in FRAMEWORKS:
        planned: Framework | None = getattr(plan.stack, name, None)
        if planned is None or planned.version is None:
            continue
        wanted = planned.version
        # Only wheels of PyTorch's own index carry the build in their version.
        if planned.origin == "index" and "+" not in wanted:
            wanted = f"{wanted}+{planned.build}"
        seen = python.get(name)
        if seen is None:
            yield Finding(
                check=NAME,
                verdict=Verdict.SKIP,
                subject="host",
                seen=f"{name} not in this environment",
                wanted=f"{name} {wanted}",
                why=f"not run: {name} is not installed in the Python environment of gpucheck",
                fix=f"run gpucheck from the environment that contains {name}",
            )
            continue
        same = seen.split("+")[0] == wanted.split("+")[0] and ("+" not in wanted or seen == wanted)
        yield Finding(
            check=NAME,
            verdict=Verdict.PASS if same else Verdict.WARN,
            subject="host",
            seen=f"{name} {seen}",
            wanted=f"{name} {wanted}",
            cause=None if same else "library-mismatch",
            confidence=None if same else "certain",
            why="" if same else f"The installed build of {name} is not the planned one.",
            fix="" if same else f"install the planned build: {PROVISION}",
        )


CHECK = Check(NAME, frozenset({"software", "quick"}), probe, evaluate)
