"""Resolve one compatible set for GPUs and an operating system, or the conflict and the nearest change that works.

The domain is small (a few branches, some dozen releases of each component), so the search is exhaustive: drivers are
tried best first, and every other component is chosen to fit the driver. No host is accessed.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

import msgspec

from gpucheck.knowledge import site_tables, tables
from gpucheck.stack.components import BY_NAME, BY_TURN, COMPONENTS, VERSIONED, driver, exact_spec
from gpucheck.stack.components.base import Choice
from gpucheck.stack.components.driver import kept
from gpucheck.stack.facts import target_of
from gpucheck.stack.rules.archive import archive_of
from gpucheck.stack.rules.driver import folder_of, is_a, r13_forward_compatibility
from gpucheck.stack.spec import StackSpec, managed
from gpucheck.stack.stack_set import SCHEMA, StackSet
from gpucheck.stack.types import Clash, Conflict, DriverChoice, Reason, Reasons, Refusal, Target
from gpucheck.stack.versions import parse, request

Candidate = tuple[DriverChoice, Reasons]


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
    return Refusal(conflicts=conflicts(target, spec, found), unknown=unknown)


def search(target: Target, spec: StackSpec) -> StackSet | tuple[Clash, ...]:
    """Return the set, or the clashes of all candidates, that of the best candidate first."""
    archive = archive_of(target.os, spec)
    clashes = [clash for component in COMPONENTS for clash in component.host_clashes(target, spec, archive)]
    if clashes:
        return tuple(clashes)
    candidates: list[Candidate] = [*kept(target, spec)]
    for branch in driver.branches(spec, archive):
        candidate = driver.of_branch(target, spec, branch, archive)
        if isinstance(candidate, Clash):
            clashes.append(candidate)
        else:
            candidates.append(candidate)
    if not candidates:
        # A branch that drives the GPUs, and that only this system's directory lacks, is the nearest to a set.
        return tuple(sorted(clashes, key=lambda clash: clash.rule != "R24")) or (driver.no_branch(spec.driver),)
    for (choice, reasons), full in _pairs(candidates, cuda_stated=request(spec.cuda).explicit):
        found = _complete(target, spec, choice, reasons, full=full)
        if isinstance(found, StackSet):
            return found
        clashes.append(found)
    explained = [c for c in clashes if c.unknown or (c.rule != "R2" and c.component != "driver")]
    return tuple(explained or clashes)


def _pairs(candidates: Sequence[Candidate], *, cuda_stated: bool) -> list[tuple[Candidate, bool]]:
    """Return drivers with whether the toolkit must be supported completely (R2) or by minor version compatibility (R1).

    The preferred branch comes first, with either; for a stated toolkit, every driver that supports it completely does.
    """
    if cuda_stated:
        return [(one, full) for full in (True, False) for one in candidates]
    return [(one, full) for one in candidates for full in (True, False)]


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
        schema_=SCHEMA,
        gpus=tuple(gpu.name for gpu in target.gpus),
        os=target.os.id,
        arch=target.arch,
        **{key: value for row in fields for key, value in row.items()},
        source=spec.source if spec.source in ("debian", "ubuntu") else None,
        reasons=tuple(choice.reasons),
    )


def counted(gpus: Sequence[str]) -> str:
    """Return ``2 x Tesla P100-PCIE``, in order of first appearance."""
    return " + ".join(f"{list(gpus).count(name)} x {name}" for name in dict.fromkeys(gpus))


def conflicts(target: Target, spec: StackSpec, clashes: tuple[Clash, ...]) -> tuple[Conflict, ...]:
    """Return the clashes as conflicts without duplicates, the first with the change that resolves it."""
    change = nearest_spec(target, spec, clashes)
    seen: dict[str, Conflict] = {}
    for clash in clashes:
        seen.setdefault(clash.because, _conflict(target, spec, clash, change))
    return tuple(seen.values())


def _conflict(target: Target, spec: StackSpec, clash: Clash, change: dict[str, str] | None) -> Conflict:
    if change:
        words = ", ".join(f"{key} {value}" for key, value in change.items())
        now = ", ".join(f"{key} {getattr(spec, key)}" for key in change)
        advice = f"{words} instead of {now}"
    elif clash.rule == "R24":
        advice = _with_that_branch(target, spec)
    else:
        advice = _other_hosts(target, spec, clash)
    if clash.way:
        advice = f"{clash.way}; or {advice}" if change else clash.way
    if clash.rule == "R1":
        advice = f"{advice}; {r13_forward_compatibility(target)}"
    between, source = clash.between, "; ".join(dict.fromkeys(fact.source for fact in clash.between))
    because, rule, changes = clash.because, clash.rule, change or {}
    return Conflict(between=between, because=because, source=source, rule=rule, try_=advice, change=changes)


def nearest_spec(target: Target, spec: StackSpec, clashes: tuple[Clash, ...]) -> dict[str, str] | None:
    """Return the fewest values to change so that a set exists, with the new values; None if no value helps."""
    for released in _relaxations(spec, clashes):
        # A revision of Ubuntu's archive does not exist in NVIDIA's repositories.
        revised = spec.source == "ubuntu" and "source" in released and request(spec.driver).package_revision
        keys = tuple(dict.fromkeys((*released, "driver"))) if revised else released
        relaxed = msgspec.structs.replace(spec, **dict.fromkeys(keys, "auto"))
        found = search(target, relaxed)
        if isinstance(found, StackSet):
            values = {**exact_spec(found), "source": found.source or "nvidia", "torch_origin": "auto"}
            return {key: values[key] for key in keys}
    return None


def _works(target: Target, spec: StackSpec) -> bool:
    return isinstance(search(target, spec), StackSet)


def _relaxations(spec: StackSpec, clashes: tuple[Clash, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the stated values to set to auto: the one that clashes first, then each, then pairs, then all."""
    stated = [row.name for row in VERSIONED if request(getattr(spec, row.name)).explicit]
    stated += [row.name for row in COMPONENTS if row.choices and getattr(spec, row.name) != "auto"]
    if spec.source in ("debian", "ubuntu"):
        stated.append("source")
    if spec.torch_origin == "pypi":
        stated.append("torch_origin")
    named = [clash.component for clash in clashes]
    stated.sort(key=lambda key: named.index(key) if key in named else len(named))
    for count in range(1, len(stated) + 1):
        yield from combinations(stated, count)


def _other_hosts(target: Target, spec: StackSpec, clash: Clash) -> str:
    """Return the advice if no version helps: other hosts, another system, other hardware."""
    # What would be allowed then could not be installed.
    if target.os.repository is None and not managed(spec) and (clash.component == "os" or clash.rule == "R15"):
        return f"a newer release, such as {_newer(target)}: NVIDIA has no package repository for {target.os.name}"
    component = BY_NAME.get(clash.component)
    own = component.advice(clash.rule, target, spec, _works) if component else None
    if own:
        return own
    if clash.component == "arch":
        return "--arch sbsa, the architecture of the host of this GPU"
    if clash.component == "os":
        if target.os.explicit_only:
            return "a newer release of the system, or state driver and cuda in stack.yml"
        return f"a newer release, such as {_newer(target)}; or end_of_life_os: allow in stack.yml, at your own risk"
    if clash.rule == "R9" and target.models:
        return "replace the GPU: Turing and newer are supported by every current component"
    return "change the hardware or the operating system: no version of any component helps"


def _newer(target: Target) -> str:
    """Return the next release of this distribution that NVIDIA has a repository for; for the EL family one for all."""
    own = target.os.os_id if target.os.family == "debian" else None
    systems = [row for row in tables.operating_systems().systems if row.os_id == own and row.repository]
    later = [row for row in systems if parse(row.version) > parse(target.os.version)]
    return min(later, key=lambda row: parse(row.version)).id if later else "rocky-9"


def _with_that_branch(target: Target, spec: StackSpec) -> str:
    """Return systems of the same distribution, then of the same family, whose repository has the missing version."""
    systems = [row for row in tables.operating_systems().systems if row.id != target.os.id and not row.explicit_only]
    newest_first = sorted(systems, key=lambda row: parse(row.version), reverse=True)
    near = sorted(newest_first, key=lambda row: row.os_id != target.os.os_id)
    family = (row for row in near if row.family == target.os.family)
    works = [row.name for row in family if _works(msgspec.structs.replace(target, os=row), spec)]
    ways = [f"{works[0]}, whose repository has it"] if works else []
    ways += [otherwise] if (otherwise := folder_of(target).otherwise) else []
    return "; or ".join([*ways, "other GPUs: Turing and newer are supported by every current component"])
