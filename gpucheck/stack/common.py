"""Resolve one set of versions for all groups of a mixed cluster, or return the two facts that exclude it.

All ranks of a job should run one framework with one NCCL; only the flavor of the kernel modules may differ by host.
Every version is resolved for every group.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from gpucheck.stack.components import BY_NAME, LISTED, exact_spec, given
from gpucheck.stack.components.base import Component
from gpucheck.stack.facts import HostFacts
from gpucheck.stack.lock import Lock, LockedGroup, lock, same_spec, still_valid, target_of_group
from gpucheck.stack.resolve import counted, search
from gpucheck.stack.rules.archive import archive_of
from gpucheck.stack.rules.driver import r18_branches
from gpucheck.stack.spec import StackSpec
from gpucheck.stack.stack_set import StackSet
from gpucheck.stack.types import Clash, Conflict, Fact, Reason, Refusal, Target
from gpucheck.stack.versions import request


class _NoneServes(Exception):
    """No version of a component works for every group. answers: group -> version -> the clash, None if it works."""

    def __init__(self, part: str, answers: dict[str, dict[str, Clash | None]]) -> None:
        super().__init__(part)
        self.part = part
        self.answers = answers


def lock_common(spec: StackSpec, facts: Iterable[HostFacts], previous: Lock | None = None) -> Lock | Refusal:
    """Resolve like ``lock``, with the same versions for every group. Unsupported hosts are not considered.

    previous: kept entirely as long as its specification and groups are the same and no rule forbids it.
    Raises LockError if two facts files describe the same host.
    """
    own = lock(spec, facts)
    if not own.groups:
        return msgspec.structs.replace(own, common=True)
    targets = {name: target_of_group(group) for name, group in own.groups.items()}
    if previous is not None and _holds(previous, spec, targets):
        kept = {name: previous.groups[name].stack for name in own.groups}
        return msgspec.structs.replace(own, common=True, groups=_with(own.groups, kept))
    try:
        pins = newest_common(spec, targets)
    except _NoneServes as none:
        return Refusal(conflicts=(_conflict(none, targets),))
    stacks: dict[str, StackSet] = {}
    pinned = msgspec.structs.replace(spec, **pins)
    for name, target in targets.items():
        found = search(target, pinned)
        assert isinstance(found, StackSet), found  # noqa: S101 - every pin was resolved together with those before it
        alone = own.groups[name].stack
        why = tuple(_held_down(name, alone, found, spec, targets))
        # A set without lowered versions keeps the reasons of its own choice.
        stacks[name] = msgspec.structs.replace(found, reasons=(*found.reasons, *why)) if why else alone
    return msgspec.structs.replace(own, common=True, groups=_with(own.groups, stacks))


def newest_common(spec: StackSpec, targets: dict[str, Target]) -> dict[str, Any]:
    """Return the values of a specification that names one set for all groups.

    Raises _NoneServes for a component without a common version.
    """
    # As for one host: first only toolkits that have their own driver, then by minor version compatibility.
    tried = [(full, driver) for full in (True, False) for driver in _drivers(spec, targets)]
    answers = (_given_driver(spec, targets, driver, full=full) for full, driver in tried)
    failures = []
    for answer in answers:
        if isinstance(answer, dict):
            return answer
        failures.append(answer)
    raise failures[0]


def _drivers(spec: StackSpec, targets: dict[str, Target]) -> tuple[str, ...]:
    matching = BY_NAME["driver"].newest_first(spec.driver)
    archives = (archive_of(target.os, spec) for target in targets.values())
    held = tuple(dict.fromkeys(archive.driver for archive in archives if archive))
    if held:
        # A release that is missing from the tables is requested with its package revision.
        return matching if request(spec.driver).package_revision else held
    if len(request(spec.driver).prefix) > 1:
        return matching
    return tuple(branch.last for branch in r18_branches(spec.prefer, spec.driver) if branch.last in matching)


def _given_driver(
    spec: StackSpec, targets: dict[str, Target], driver: str, *, full: bool
) -> dict[str, Any] | _NoneServes:
    pins: dict[str, Any] = {}
    for component in LISTED:
        part = component.name
        wanted = str(getattr(spec, part))
        if request(wanted).none or pins.get(component.built_for) == "none" or not component.pinned(spec):
            continue
        pinned = msgspec.structs.replace(spec, **pins)
        order = (driver,) if part == "driver" else tuple(_order(component, wanted, pinned, targets))
        in_full = component.partial and full
        if in_full:
            order = tuple(version for version in order if component.in_full(version, request(driver).version))
        best, answers = _serving(part, order, pinned, targets)
        if best is not None:
            pins[part] = best
        # A training job needs a required one on every rank; any other is omitted if no version serves all groups.
        elif component.required or request(wanted).explicit or in_full:
            return _NoneServes(part, answers)
        else:
            pins[part] = "none"
    return pins


def _order(component: Component, wanted: str, pinned: StackSpec, targets: dict[str, Target]) -> Iterator[str]:
    """Yield versions, newest first; before them what the groups would choose, if torch determines the version."""
    known = component.in_order(wanted, pinned)
    if component.built_for:
        found = (search(target, pinned) for target in targets.values())
        own = {component.value(stack) for stack in found if isinstance(stack, StackSet)}
        yield from (version for version in known if version in own)
    yield from known


def _serving(
    part: str, order: tuple[str, ...], pinned: StackSpec, targets: dict[str, Target]
) -> tuple[str | None, dict[str, dict[str, Clash | None]]]:
    """Return the first version that every group can have, and the clash of each group with each version."""
    answers: dict[str, dict[str, Clash | None]] = {name: {} for name in targets}
    for version in dict.fromkeys(order):
        candidate = msgspec.structs.replace(pinned, **{part: version})
        for name, target in targets.items():
            found = search(target, candidate)
            answers[name][version] = None if isinstance(found, StackSet) else found[0]
        if all(clashes[version] is None for clashes in answers.values()):
            return version, answers
    return None, answers


def _conflict(none: _NoneServes, targets: dict[str, Target]) -> Conflict:
    """Return the conflict of two groups without a common version: for each, what excludes the newest of the other."""
    usable = {name: [v for v, clash in clashes.items() if clash is None] for name, clashes in none.answers.items()}
    names = sorted(usable)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if not set(usable[a]) & set(usable[b])]
    part = none.part.replace("_", " ")
    if not pairs:
        facts = tuple(Fact(f"{name} can have {part} {', '.join(usable[name][:3])}", "the tables") for name in names[:2])
        because = f"no {part} works for all groups: {', '.join(names)}"
        return Conflict(between=facts, because=because, source="the tables", try_=ADVICE.format(part=none.part))
    a, b = pairs[0]
    facts = tuple(
        fact
        for group, other in ((a, b), (b, a))
        for fact in _ruled_out(none, group, usable[other][0] if usable[other] else None, other)
    )
    who = " and ".join(f"{name} ({counted([gpu.name for gpu in targets[name].gpus])})" for name in (a, b))
    exclusion = none.answers[a].get(usable[b][0]) if usable[b] else None
    return Conflict(
        between=facts,
        because=f"no {part} works for both {who}",
        source="; ".join(dict.fromkeys(fact.source for fact in facts)),
        rule=exclusion.rule if exclusion else "",
        try_=ADVICE.format(part=none.part),
    )


ADVICE = (
    "two partitions with two stacks: lock without --common, so that each group has its own set; "
    "or omit it from the common set: {part}: none in stack.yml"
)


def _ruled_out(none: _NoneServes, group: str, version: str | None, other: str) -> Iterator[Fact]:
    clash = none.answers[group].get(version) if version else None
    if clash is not None and version is not None:
        part = none.part.replace("_", " ")
        source = ", ".join(dict.fromkeys(fact.source for fact in clash.between))
        text = f"{part} {version}, the newest for {other}, does not work for {group}: {clash.between[0].fact}"
        yield Fact(text, source)


def _held_down(
    name: str, own: StackSet, found: StackSet, spec: StackSpec, targets: dict[str, Target]
) -> Iterator[Reason]:
    """Yield why the version differs from what this group would have alone: the first group that cannot use that."""
    for component in LISTED:
        part, alone, now = component.name, component.value(own), component.value(found)
        if alone is None or alone == now:
            continue
        clash, other = _first_refusal(part, alone, name, found, spec, targets)
        text = f"{now or 'none'} for all groups; alone this group would have {alone}"
        if clash is None:
            yield Reason(component=part, because=f"{text}, which conflicts with the other common components", rule="")
            continue
        source = ", ".join(dict.fromkeys(fact.source for fact in clash.between))
        yield Reason(component=part, because=f"{text}, but {other}: {clash.because}", rule=clash.rule, source=source)


def _first_refusal(
    part: str, version: str, name: str, found: StackSet, spec: StackSpec, targets: dict[str, Target]
) -> tuple[Clash | None, str]:
    candidate = msgspec.structs.replace(spec, **{part: version})
    # A component built for another is requested together with that version.
    candidate = msgspec.structs.replace(candidate, **given(BY_NAME[part], found))
    for other, target in targets.items():
        result = search(target, candidate)
        if other != name and not isinstance(result, StackSet):
            return result[0], other
    return None, ""


def _holds(previous: Lock, spec: StackSpec, targets: dict[str, Target]) -> bool:
    if set(previous.groups) != set(targets) or not same_spec(previous, spec):
        return False
    stacks = [previous.groups[name].stack for name in targets]
    one = {tuple(v for k, v in exact_spec(stack).items() if k != "kernel_module") for stack in stacks}
    return len(one) == 1 and not any(still_valid(targets[name], previous.groups[name].stack, spec) for name in targets)


def _with(groups: dict[str, LockedGroup], stacks: dict[str, StackSet]) -> dict[str, LockedGroup]:
    return {name: msgspec.structs.replace(group, stack=stacks[name]) for name, group in groups.items()}
