"""Resolve one compatible set for GPUs and an operating system, or the conflict and the nearest change that works.

The domain is small (a few branches, some dozen releases of each component), so the search is exhaustive: drivers are
tried best first, and every other component is chosen to fit the driver. No host is accessed.
"""

from collections.abc import Iterator, Sequence

import msgspec

from gpucheck.knowledge import site_tables
from gpucheck.stack.advice import conflicts
from gpucheck.stack.components import BY_TURN, COMPONENTS, driver
from gpucheck.stack.components.base import Choice
from gpucheck.stack.rules.archive import archive_of
from gpucheck.stack.rules.driver import is_a
from gpucheck.stack.spec import StackSpec
from gpucheck.stack.stack_set import StackSet
from gpucheck.stack.targets import target_of
from gpucheck.stack.types import Clash, DriverChoice, Reason, Reasons, Refusal, Target


def resolve(
    gpus: Sequence[str],
    os: str,
    arch: str | None = None,
    spec: StackSpec | None = None,
    *,
    nvswitches: int | None = None,
) -> StackSet | Refusal:
    """Return the set for GPUs given by name or PCI id, on an operating system such as ``ubuntu-22.04``.

    arch None: that of the GPUs (Grace is sbsa), else x86_64. Raises UnknownInput with the closest name.
    """
    return resolve_target(target_of(gpus, os, arch, nvswitches=nvswitches), spec or StackSpec())


def resolve_target(target: Target, spec: StackSpec) -> StackSet | Refusal:
    """Return the set for a target, or why there is no set, with the nearest change that works."""
    found = search(target, spec)
    if isinstance(found, StackSet):
        return found
    unknown = all(clash.unknown for clash in found)
    return Refusal(conflicts=conflicts(target, spec, found, search), unknown=unknown)


def search(target: Target, spec: StackSpec) -> StackSet | tuple[Clash, ...]:
    """Return the set, or the clashes of all candidates, that of the best candidate first."""
    archive = archive_of(target.os, spec)
    clashes = [clash for component in COMPONENTS for clash in component.host_clashes(target, spec, archive)]
    if clashes:
        return tuple(clashes)
    candidates: list[tuple[DriverChoice, Reasons]] = []
    for branch in driver.branches(spec, archive):
        candidate = driver.of_branch(target, spec, branch, archive)
        if isinstance(candidate, Clash):
            clashes.append(candidate)
        else:
            candidates.append(candidate)
    if not candidates:
        return tuple(clashes) or (driver.no_branch(spec.driver),)
    # First only sets whose driver meets the toolkit's own minimum (R2), then by minor version compatibility (R1).
    for full in (True, False):
        for choice, reasons in candidates:
            found = _complete(target, spec, choice, reasons, full=full)
            if isinstance(found, StackSet):
                return found
            clashes.append(found)
    explained = [c for c in clashes if c.unknown or (c.rule != "R2" and c.component != "driver")]
    return tuple(explained or clashes)


def _assumptions(target: Target) -> Iterator[Reason]:
    if site_tables():
        text = f"tables with your own rows: {', '.join(site_tables())}"
        yield Reason(component="tables", because=text, source="your tables", confirmed=False)
    for text in target.taken:
        yield Reason(component="gpus", because=text, rule="R17", source="the specification", confirmed=False)
    for gpu in target.models:
        if gpu.general_knowledge:
            text = f"{is_a(gpu)}: known in general, not confirmed by a source"
            yield Reason(component="gpus", because=text, rule="R9", source="spec-lists", confirmed=False)


def _complete(
    target: Target, spec: StackSpec, chosen: DriverChoice, reasons: Reasons, *, full: bool
) -> StackSet | Clash:
    """Choose every component for the driver. A component on auto that is not available is omitted with its reason."""
    archive = archive_of(target.os, spec)
    why = [*reasons, *_assumptions(target)]
    choice = Choice(target=target, spec=spec, driver=chosen, archive=archive, full=full, reasons=why)
    for component in BY_TURN:
        found = component.choose(choice)
        if isinstance(found, Clash):
            return found
        choice.chosen[component.name] = found
    fields = [component.fields(choice.chosen[component.name]) for component in COMPONENTS]
    return StackSet(
        gpus=tuple(gpu.name for gpu in target.gpus),
        os=target.os.id,
        arch=target.arch,
        **{key: value for row in fields for key, value in row.items()},
        source=spec.source if spec.source in ("debian", "ubuntu") else msgspec.UNSET,
        reasons=tuple(choice.reasons),
    )


def counted(gpus: Sequence[str]) -> str:
    """Return ``2 x Tesla P100-PCIE``, in order of first appearance."""
    return " + ".join(f"{list(gpus).count(name)} x {name}" for name in dict.fromkeys(gpus))
