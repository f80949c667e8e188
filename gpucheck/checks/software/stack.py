"""Stack: are exactly the planned versions installed, and were the framework wheels built for this host?

Source: the plan that provisioning writes to the host, compared with dpkg or rpm, the loaded and the installed kernel
module, and the Python packages in gpucheck's environment. A version that changed by itself (an unattended upgrade, an
unpinned NCCL) shows here first.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.checks.software._plan import FABRIC_MANAGER, PLAN, Unreadable, evaluate_plan, read_plan
from gpucheck.checks.software._wheels import HOST, Imported, Wheel, evaluate_wheels, read_wheels
from gpucheck.knowledge import gpu_by_pci_id
from gpucheck.model import Check, DriverState, Finding, Host, NvmlReading, PackageVersion

NAME = "stack"


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
    yield from evaluate_wheels(
        values.wheels,
        values.libraries,
        values.capabilities,
        values.driver.loaded_version,
        values.arch,
        values.imported,
    )


def _planned(values: Values) -> Iterator[Finding]:
    if values.plan is None:
        yield HOST.skips("software.no-plan", "no plan", path=values.where)
        return
    try:
        plan = read_plan(values.plan)
    except Unreadable as problem:
        yield HOST.unknown("software.plan-unreadable", path=values.where, problem=str(problem))
        return
    python = {wheel.name: wheel.version for wheel in values.wheels}
    yield from evaluate_plan(plan, values.packages, values.driver, python)


CHECK = Check(NAME, frozenset({"software", "quick"}), probe, evaluate)
