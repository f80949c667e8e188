"""Stack: are exactly the planned versions installed, and were the framework wheels built for this host?

Source: the plan that provisioning writes to the host, compared with dpkg or rpm, the loaded and the installed kernel
module, and the Python packages in gpucheck's environment. A version that changed by itself (an unattended upgrade, an
unpinned NCCL) shows here first.
"""

from collections.abc import Iterator

from gpucheck.checks.software import _wheels
from gpucheck.checks.software._plan import PLAN, Unreadable, evaluate_plan, read_plan
from gpucheck.checks.software._wheels import HOST, Imported, evaluate_wheels, read_wheels
from gpucheck.model import Check, Finding
from gpucheck.model.facts import Facts

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
    wheels, _ = read_wheels(facts)
    yield from evaluate_plan(plan, facts, {wheel.name: wheel.version for wheel in wheels})


CHECK = Check(NAME, frozenset({"software", "quick"}), evaluate=evaluate, needs=(f"text:{PLAN}", *NEEDS), more=more)
