"""Define what the resolver, the lock and the plan need of a component; defaults are empty."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from gpucheck.knowledge.packages import Archive
from gpucheck.stack.types import (
    KEEP,
    Clash,
    Conflict,
    DriverChoice,
    PlanInput,
    Reason,
    Reasons,
    StackSet,
    StackSpec,
    Target,
)
from gpucheck.stack.versions import request

SYSTEM = "{system}"
# Under repositories: the hosts' own sources have all packages.
MANAGED = "managed"
Works = Callable[[Target, StackSpec], bool]
Chosen = tuple[Any, Reasons]


class Choice(msgspec.Struct, kw_only=True):
    """A set while it is resolved. chosen: by component, None = omitted.

    full: only toolkits whose functions the driver supports completely.
    archive: the distribution's archive that packages come from, None = NVIDIA's repositories.
    """

    target: Target
    spec: Any
    driver: DriverChoice
    archive: Archive | None
    full: bool
    reasons: list[Reason]
    chosen: dict[str, Any] = msgspec.field(default_factory=dict)

    def settle(self, found: Chosen | Clash, requested: str) -> Any:
        """Return the version and record its reasons. None: not requested, or auto and not available.

        Returns a Clash if the specification states a version that is not available.
        """
        parsed = request(requested)
        if parsed.none:
            return None
        if not isinstance(found, Clash):
            self.reasons += found[1]
            return found[0]
        if parsed.explicit:
            return found
        source = ", ".join(dict.fromkeys(fact.source for fact in found.between))
        text = f"omitted: {found.because}"
        self.reasons.append(Reason(component=found.component, because=text, rule=found.rule, source=source))
        return None


class Component:
    """One component of the stack; each module of this package has one as COMPONENT.

    name: its key in stack.yml, the set and the plan. title: as text. place: its position in lists of components.
    turn: its position in the order of choice, after what it depends on; its services and files keep that order.
    default: of its key in stack.yml, None = no key. choices: the only values of that key, empty = versions.
    optional: in a set and a plan only if requested. built_for: the component for whose major version it is built.
    part: the component of the plan with its packages, empty = no packages.
    nvidia: the directory of NVIDIA's repositories with these packages, SYSTEM for that of the host's system.
    in_archive: the archives of distributions that have the packages too; a set from one of them uses them.
    """

    name = ""
    title = ""
    place = 0
    turn = 0
    default: str | None = None
    choices: tuple[str, ...] = ()
    optional = False
    built_for = ""
    part = ""
    nvidia = ""
    in_archive: tuple[str, ...] = ()

    # The specification.

    def check(self, value: str) -> None:
        """Raise ValueError if stack.yml cannot hold this value."""
        if request(value).text == KEEP:
            raise ValueError("only a driver can be kept")

    def contradictions(self, spec: StackSpec) -> Iterator[tuple[tuple[str, str], str]]:
        """Yield contradictions of the specification that hold on every host: the two keys, and why."""
        yield from ()

    # The choice.

    def host_clashes(self, target: Target, spec: StackSpec, archive: Archive | None) -> Iterator[Clash]:
        """Yield clashes that no choice of versions can resolve."""
        yield from ()

    def choose(self, choice: Choice) -> Any:
        """Return the version for the set, None = omitted, or a Clash. Records its reasons."""
        return None

    def fields(self, chosen: Any) -> dict[str, Any]:
        """Return the fields of the set."""
        return {self.name: chosen}

    def value(self, stack: StackSet) -> str | None:
        """Return the version in a set, as the specification names it; None = omitted."""
        value: str | None = getattr(stack, self.name, None)
        return value

    def exact(self, stack: StackSet) -> str:
        """Return the value of the specification that names exactly the version of a set."""
        return self.value(stack) or "none"

    # The lock.

    def edited(self, locked: StackSet, found: StackSet) -> Conflict | None:
        """Return the conflict if a locked set differs from what its driver and its hosts need."""
        return None

    def group_suffix(self, target: Target) -> str:
        """Return the suffix of the name of a group of hosts."""
        return ""

    # The advice.

    def advice(self, rule: str, target: Target, spec: StackSpec, works: Works) -> str | None:
        """Return the advice for a clash of this component that no other version resolves."""
        return None

    def label(self, stack: StackSet) -> str | None:
        """Return its value as text, None = no line."""
        return self.value(stack) or (None if self.optional else "none")

    # The plan.

    def packages(self, plan: PlanInput) -> dict[str, Any] | None:
        """Return packages, holds and what else the component needs; None = not in the plan. Raises PlanGap.

        In addition to packages and holds: services: units that must run; ``refuse``: packages that the host must
        not have; files.
        """
        return None

    def repository(self, plan: PlanInput) -> dict[str, str | None] | None:
        """Return a package repository for this component alone."""
        return None

    def folder(self, plan: PlanInput) -> str | None:
        """Return the directory of NVIDIA's repositories with its packages, None = no such directory."""
        if plan.stack.source in self.in_archive or not self.nvidia:
            return None
        return self.nvidia.format(system=plan.system.repository or "")

    def services(self, stack: StackSet, spec: StackSpec) -> Iterator[dict[str, Any]]:
        """Yield rows of the plan's services."""
        yield from ()

    def files(self, plan: PlanInput) -> Iterator[dict[str, Any]]:
        """Yield rows of the plan's files."""
        yield from ()

    def notes(self, plan: PlanInput) -> Iterator[Reason]:
        """Yield notes for the reader of the plan."""
        yield from ()

    def expected(self, stack: StackSet) -> dict[str, str | None]:
        """Return the values that a host reports after the plan is applied."""
        return {}

    def container_engines(self, plan: PlanInput) -> tuple[dict[str, Any], ...]:
        """Return container engines to configure for the NVIDIA runtime if they are installed."""
        return ()
