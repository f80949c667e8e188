"""What a level has to prove on this host, and what a selection of steps leaves unproven."""

from collections.abc import Iterable
from typing import NamedTuple

from gpucheck.checks.software._wheels import FRAMEWORKS
from gpucheck.checks.software.stack import PLAN, Unreadable, read_plan
from gpucheck.checks.training._words import distribution
from gpucheck.knowledge.codes import Subject
from gpucheck.model.facts import Source
from gpucheck.run.step import Outcome, RunStep

# What every level above quick trains with, unless the plan of the host names no framework.
REQUIRED = "torch"


class NotRequired(NamedTuple):
    """Why no level has to prove a framework. text: for the list of what is not proven. code: of the finding."""

    text: str
    code: str


def planned_frameworks(source: Source) -> frozenset[str] | None:
    """Return what the plan that provisioning recorded on the host names; None if it cannot be read.

    The ``stack`` check reports a plan that is missing or damaged.
    """
    try:
        stack = read_plan(source.read(f"text:{PLAN}").texts[PLAN] or "").stack
    except Unreadable:
        return None
    return None if stack is None else frozenset(name for name in FRAMEWORKS if getattr(stack, name))


def not_required(source: Source, framework: str, gpus: int) -> NotRequired | None:
    """Return why no level has to prove this framework here, None if one has to. gpus: that the host has."""
    if gpus == 0:
        return NotRequired("this host has no GPU", "training.host-without-gpu")
    planned = planned_frameworks(source)
    if planned is None:
        text = f"{framework} is not installed, and no plan on this host names it"
        return None if framework == REQUIRED else NotRequired(text, "training.framework-in-no-plan")
    text = f"the plan of this host names no {framework}"
    return None if framework in planned else NotRequired(text, "training.framework-not-planned")


def not_planned(source: Source, check: str, claim: str, gpus: int) -> Outcome | None:
    """Return the outcome of a step that lacks the required framework on a host that needs none; None if it does.

    claim: what the step would have shown.
    """
    reason = not_required(source, REQUIRED, gpus)
    if reason is None:
        return None
    values = {"framework": REQUIRED, "distribution": distribution(REQUIRED)}
    skipped = Subject(check=check).skips(reason.code, "not run", **values)
    return Outcome((skipped,), {}, (f"{claim}, {reason.text}",))


def left_out(
    every: Iterable[RunStep], chosen: Iterable[RunStep], only: Iterable[str], skip: Iterable[str]
) -> tuple[str, ...]:
    """Return what --only and --skip removed from a level, one entry for each option value that removed something.

    every: the steps of the level without the two options. chosen: those with them.
    """
    kept, only = {step.name for step in chosen}, tuple(only)
    removed = [{step.name, *step.tags} for step in every if step.name not in kept]
    beyond = only and any(names.isdisjoint(only) for names in removed)
    skipped = [
        word
        for word in dict.fromkeys(skip)
        if any(word in names and not (only and names.isdisjoint(only)) for names in removed)
    ]
    everything = (f"everything except {', '.join(only)}, excluded by --only",) if beyond else ()
    return (*everything, *(f"{word}, excluded by --skip" for word in skipped))
