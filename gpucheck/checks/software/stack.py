"""Stack: are exactly the planned versions installed, and were the framework wheels built for this host?

Source: the plan that provisioning writes to the host, compared with dpkg or rpm, the loaded and the installed kernel
module, and the Python packages in gpucheck's environment. A version that changed by itself (an unattended upgrade, an
unpinned NCCL) shows here first.
"""

from collections.abc import Iterator
from typing import Literal

import msgspec

from gpucheck.checks._nvml import quick_check
from gpucheck.checks.software import _wheels
from gpucheck.checks.software._wheels import FRAMEWORKS, HOST, Imported, evaluate_wheels, read_wheels
from gpucheck.model import DriverState, Finding, PackageVersion
from gpucheck.model.facts import Facts

PLAN = "/etc/gpucheck/stack.json"


class Package(msgspec.Struct, frozen=True):
    """A planned package. version: None for the newest of its repository."""

    name: str
    version: str | None


class Component(msgspec.Struct, frozen=True):
    """The packages of a component, and the names of those that are held."""

    packages: tuple[Package, ...]
    holds: tuple[str, ...] = ()


class Unconfirmed(msgspec.Struct, frozen=True):
    """A name or version of the plan that no published record of the repositories shows."""

    component: str
    spec: str
    because: str = ""


class Expected(msgspec.Struct, frozen=True):
    """What runs once the plan is carried out; None where the plan leaves it open."""

    driver_version: str | None = None
    kernel_module: str | None = None


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
    unconfirmed: tuple[Unconfirmed, ...] = ()


class Unreadable(ValueError):
    """The text is not a plan."""


def read_plan(text: str) -> Plan:
    """Return the plan that provisioning recorded. Raises Unreadable."""
    try:
        return msgspec.json.decode(text, type=Plan)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise Unreadable(str(error)) from error


def _components(plan: Plan, installed: dict[str, PackageVersion | None]) -> Iterator[Finding]:
    for name, component in plan.components.items():
        if not component.packages:
            continue
        wrong, loose = [], []
        for row in component.packages:
            found = installed[row.name]
            # A plan without a version takes the newest of its repository and holds it.
            if found is None or row.version not in (None, found.version):
                wrong.append((row, found.version if found else None))
            elif row.name in component.holds and not found.held:
                loose.append(f"{row.name} {found.version}")
        unconfirmed = [
            f"unconfirmed when planned: {row.spec}: {row.because}" for row in plan.unconfirmed if row.component == name
        ]
        yield _component(name, component.packages, wrong, loose, unconfirmed)


def _component(
    component: str,
    rows: tuple[Package, ...],
    wrong: list[tuple[Package, str | None]],
    loose: list[str],
    unconfirmed: list[str],
) -> Finding:
    """wrong: what is installed in place of a planned package, None for nothing. loose: packages that are not held."""
    wanted = f"{len(rows)} packages as planned, held"
    if wrong:
        lines = (
            f"{row.name}: {version or 'not installed'}, planned {row.version or 'any version'}"
            for row, version in wrong
        )
        subject = HOST.with_evidence(*lines, *unconfirmed)
        seen = f"{component}: {len(wrong)} of {len(rows)} packages differ"
        planned = [f"{row.name} {row.version or ''}".rstrip() for row, _ in wrong]
        installed = [f"{row.name} {version}" for row, version in wrong if version]
        if installed:
            return subject.fails("software.packages-differ", seen, wanted, planned=planned, installed=installed)
        return subject.fails("software.packages-missing", seen, wanted, planned=planned)
    if loose:
        subject = HOST.with_evidence(*(f"{package} is not held" for package in loose), *unconfirmed)
        seen = f"{component}: {len(loose)} packages can be upgraded by themselves"
        return subject.warns("software.packages-not-held", seen, wanted, packages=loose)
    subject = HOST.with_evidence(*(f"{row.name} {row.version}" for row in rows), *unconfirmed)
    return subject.passes(f"{component}: {', '.join(sorted({row.version or 'newest' for row in rows}))}", wanted)


def _module(plan: Plan, driver: DriverState) -> Iterator[Finding]:
    expected = plan.expected or Expected()
    version, flavour = expected.driver_version, expected.kernel_module
    if version is None:
        return
    seen = f"kernel module {driver.loaded_version or 'not loaded'} {driver.loaded_flavour or ''}".rstrip()
    wanted = f"kernel module {version} {flavour}"
    installed = f"{driver.installed_version or 'not found'} {driver.installed_flavour or ''}".rstrip()
    subject = HOST.with_evidence(f"installed module: {installed}")
    if driver.loaded_version != version:
        yield subject.fails("software.module-not-planned", seen, wanted)
    elif flavour is not None and driver.loaded_flavour not in (None, flavour):
        yield subject.fails("software.loaded-flavour-not-planned", seen, wanted)
    elif driver.installed_version not in (None, version) or (
        flavour and driver.installed_flavour not in (None, flavour)
    ):
        yield subject.fails("software.next-module-not-planned", seen, wanted, installed=installed)
    else:
        yield subject.passes(seen, wanted)


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
            code, absent = "software.framework-not-installed", f"{name} not in this environment"
            yield HOST.skips(code, absent, f"{name} {wanted}", framework=name)
            continue
        same = seen.split("+")[0] == wanted.split("+")[0] and ("+" not in wanted or seen == wanted)
        if same:
            yield HOST.passes(f"{name} {seen}", f"{name} {wanted}")
            continue
        yield HOST.warns("software.framework-not-planned", f"{name} {seen}", f"{name} {wanted}", framework=name)


NAME = "stack"
NEEDS = _wheels.NEEDS  # without the plan, which may also come from elsewhere


def more(facts: Facts, plan: str | None = None) -> Iterator[str]:
    """Further needs: the packages that the plan names, and what the wheels need. plan: as of evaluate."""
    text = facts.texts[PLAN] if plan is None else plan
    try:
        components = read_plan(text).components if text is not None else {}
    except Unreadable:
        components = {}
    yield from (f"package:{package.name}" for part in components.values() for package in part.packages)
    yield from _wheels.more(facts)


def evaluate(
    facts: Facts, plan: str | None = None, where: str = PLAN, imported: Imported | None = None
) -> Iterator[Finding]:
    """The packages of each component, the modules loaded and installed, and the frameworks.

    plan: another plan than the host's own, as JSON, read from ``where``. imported: what torch reported.
    """
    yield from _planned(facts, facts.texts[PLAN] if plan is None else plan, where)
    yield from evaluate_wheels(facts, imported)


def _planned(facts: Facts, text: str | None, where: str) -> Iterator[Finding]:
    if text is None:
        yield HOST.skips("software.no-plan", "no plan", path=where)
        return
    try:
        plan = read_plan(text)
    except Unreadable as problem:
        yield HOST.unknown("software.plan-unreadable", path=where, problem=str(problem))
        return
    if facts.packages is None:
        yield HOST.unknown("software.packages-unreadable")
    else:
        yield from _components(plan, facts.packages)
    yield from _module(plan, facts.driver)
    yield from _frameworks(plan, {wheel.name: wheel.version for wheel in read_wheels(facts)[0]})


CHECK = quick_check(NAME, "software", evaluate, (f"text:{PLAN}", *NEEDS), more=more)
