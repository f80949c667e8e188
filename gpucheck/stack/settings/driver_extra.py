"""Additional driver components from the specification: NVENC, MPS, OpenGL and others, at the driver's version."""

from gpucheck.knowledge.options import DriverExtra, options
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
