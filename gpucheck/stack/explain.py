"""Explain why a component has its version: what forbids the next newer one, and which change allows it.

This module has no rules: it runs the resolver for every newer version and for every suggested change.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from gpucheck.knowledge import gpus, tables
from gpucheck.knowledge.strict import did_you_mean
from gpucheck.stack.components import BY_NAME, COMPONENTS, LISTED, given
from gpucheck.stack.components import EXPLAINED as ROWS
from gpucheck.stack.components.base import Component, NotFirst, plain
from gpucheck.stack.resolve import search
from gpucheck.stack.spec import StackSpec
from gpucheck.stack.stack_set import StackSet
from gpucheck.stack.types import Clash, Fact, Reason, Target
from gpucheck.stack.versions import cc, parse, request

SCHEMA = "gpucheck.explanation/1"
EXPLAINED = tuple(row.name for row in ROWS)
CHOSEN = tuple(row.name for row in COMPONENTS if row.choices)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A newer version that was resolved.

    possible: a set with it exists, with the changes named; else rule and between state what forbids it.
    lifts: changes after which the resolver chooses it; each was resolved.
    """

    version: str
    possible: bool
    because: str
    rule: str = ""
    between: tuple[Fact, ...] = ()
    price: tuple[str, ...] = ()
    lifts: tuple[str, ...] = ()


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """One component. version None: omitted. held_by: the next newer version, and the first one that is forbidden."""

    component: str
    version: str | None
    reasons: tuple[Reason, ...]
    held_by: tuple[Step, ...]
    note: str = ""


def component_named(word: str) -> str:
    """Return the component with this name. Raises ValueError with the closest name."""
    name = word.strip().lower().replace("-", "_")
    if name not in EXPLAINED:
        raise ValueError(f"{word!r} is not a component. {did_you_mean(name, EXPLAINED)}")
    return name


def explain(target: Target, spec: StackSpec, stack: StackSet, component: str | None = None) -> tuple[Explanation, ...]:
    """Explain one component of a set, or all of them. stack: the set resolved or locked for target and spec."""
    rows = (BY_NAME[component],) if component else ROWS
    return tuple(_explanation(target, spec, stack, row) for row in rows)


def _explanation(target: Target, spec: StackSpec, stack: StackSet, row: Component) -> Explanation:
    part, version = row.name, row.value(stack)
    reasons = tuple(reason for reason in stack.reasons if reason.component == part)
    if row.follows:
        absent = "is not needed here" if row.default is None else "not requested"
        note = f"its version follows {row.follows}" if version else absent
        return Explanation(component=part, version=version, reasons=reasons, held_by=(), note=note)
    if request(getattr(spec, part)).none:
        return Explanation(component=part, version=None, reasons=reasons, held_by=(), note="not requested")
    # For an omitted component, only the newest version.
    newer = row.versions()[-1:] if version is None else row.newer(version)
    note = "" if newer else "nothing newer is in the tables"
    held = tuple(_held(target, spec, stack, row, newer))
    return Explanation(component=part, version=version, reasons=reasons, held_by=held, note=note)


def _held(target: Target, spec: StackSpec, stack: StackSet, row: Component, newer: tuple[str, ...]) -> Iterator[Step]:
    """Yield the next newer version and, if that one is possible, the first that is forbidden."""
    part = row.name
    for place, version in enumerate(newer):
        # A component built for another is requested together with that version.
        candidate = msgspec.structs.replace(spec, **{**given(row, stack), part: version})
        found = search(target, candidate)
        if isinstance(found, StackSet):
            if place == 0:
                yield _possible(target, spec, stack, row, version, found)
            continue
        clash = found[0]
        yield Step(
            version=version,
            possible=False,
            because=clash.because,
            rule=clash.rule,
            between=clash.between,
            lifts=tuple(_lifts(target, candidate, part, clash)),
        )
        return


def _possible(target: Target, spec: StackSpec, stack: StackSet, row: Component, version: str, found: StackSet) -> Step:
    part = row.name
    price = (*_moves(part, stack, found), *_doubts(part, stack, found))
    requested = request(getattr(spec, part))
    if requested.explicit and not requested.matches(plain(version)):
        why = NotFirst(f"{part} {requested.text} is requested, which excludes {version}")
    else:
        why = row.not_first(stack, spec, version)
    lifts = (f"{part}: {version} in stack.yml, or --want {part}={version}", *_preferences(target, spec, row, version))
    return Step(version=version, possible=True, **why._asdict(), price=price, lifts=lifts)


def _moves(part: str, before: StackSet, after: StackSet) -> Iterator[str]:
    for other in (*LISTED, *(BY_NAME[name] for name in CHOSEN)):
        old, new = other.value(before), other.value(after)
        if other.name != part and old != new:
            yield f"{other.name} changes from {old or 'none'} to {new or 'none'}"


def _doubts(part: str, before: StackSet, after: StackSet) -> Iterator[str]:
    known = {reason.because for reason in before.reasons}
    for reason in after.reasons:
        if reason.component == part and not reason.confirmed and reason.because not in known:
            yield reason.because


def _preferences(target: Target, spec: StackSpec, row: Component, version: str) -> Iterator[str]:
    """Yield other preferences, origins and branches with which the resolver chooses this version."""
    for prefer in ("production", "newest"):
        changed: Any = {"prefer": prefer}
        if prefer != spec.prefer and _reaches(target, spec, changed, row, version):
            yield f"prefer: {prefer}"
    if spec.torch_origin != "any" and _reaches(target, spec, {"torch_origin": "any"}, row, version):
        yield "torch_origin: any"
    if row.name == "driver" or not request(spec.driver).auto:
        return
    for branch in tables.drivers().branches:
        if branch.state == "supported" and _reaches(target, spec, {"driver": branch.branch}, row, version):
            yield f"driver: {branch.branch}"
            return


def _reaches(target: Target, spec: StackSpec, changes: dict[str, Any], row: Component, version: str) -> bool:
    found = search(target, msgspec.structs.replace(spec, **changes))
    have = row.value(found) if isinstance(found, StackSet) else None
    return have is not None and parse(plain(have)) >= parse(plain(version))


def _lifts(target: Target, spec: StackSpec, part: str, clash: Clash) -> Iterator[str]:
    """Yield what resolves a conflict: another specification, fewer GPUs, another system, newer GPUs; one of each."""
    ways = (_other_spec(target, spec, part), _fewer_gpus(target, spec), _other_system(target, spec))
    found = [way for way in (next(kind, None) for kind in ways) if way]
    found += [way for way in (next(_newer_gpu(target, spec), None),) if way]
    yield from found
    if not found:
        yield "an entry with its source in gpucheck/knowledge" if clash.unknown else "no change that the tables know"


def _other_spec(target: Target, spec: StackSpec, part: str) -> Iterator[str]:
    free: dict[str, Any] = dict.fromkeys((*(row.name for row in LISTED), *CHOSEN, "source", "torch_origin"), "auto")
    for key in free:
        stated = getattr(spec, key)
        if key != part and stated != "auto" and _works(target, msgspec.structs.replace(spec, **{key: "auto"})):
            yield f"{key}: auto instead of {stated}"


def _fewer_gpus(target: Target, spec: StackSpec) -> Iterator[str]:
    for model in target.models if len(target.models) > 1 else ():
        rest = tuple(gpu for gpu in target.gpus if gpu != model)
        if _works(msgspec.structs.replace(target, gpus=rest), spec):
            yield f"without the {model.name}: put it into another host"


def _other_system(target: Target, spec: StackSpec) -> Iterator[str]:
    systems = [s for s in tables.operating_systems().systems if s.id != target.os.id and not s.explicit_only]
    own = [s for s in systems if s.os_id == target.os.os_id and parse(s.version) > parse(target.os.version)]
    kin = [s for s in systems if s.family == target.os.family and s.os_id != target.os.os_id]
    for system in (*own, *kin):
        if _works(msgspec.structs.replace(target, os=system), spec):
            yield f"another system, for example {system.name}"


def _newer_gpu(target: Target, spec: StackSpec) -> Iterator[str]:
    """Yield the oldest data-center GPU that works; it must be newer than the oldest GPU here."""
    oldest = min(cc(gpu.compute_capability) for gpu in target.models)
    rows = [gpu for gpu in gpus() if gpu.cls == "datacenter" and cc(gpu.compute_capability) > oldest]
    for gpu in sorted(rows, key=lambda gpu: cc(gpu.compute_capability)):
        if _works(msgspec.structs.replace(target, gpus=(gpu,), nvswitches=None), spec):
            yield f"other GPUs: from {gpu.architecture} on (resolved for a {gpu.name})"


def _works(target: Target, spec: StackSpec) -> bool:
    return isinstance(search(target, spec), StackSet)
