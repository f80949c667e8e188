"""What the resolver, the lock, the plan and the explanation need of one component; every default is "nothing"."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gpucheck.knowledge.archives import Archive
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.types import Clash, Conflict, DriverChoice, Fact, Reason, Target
from gpucheck.stack.versions import parse, request

if TYPE_CHECKING:
    from gpucheck.stack.spec import StackSpec
    from gpucheck.stack.stack_set import StackSet

SYSTEM = "{system}"
# Under repositories: the hosts' own sources hold everything.
MANAGED = "managed"
Works = Callable[[Target, "StackSpec"], bool]
Chosen = tuple[Any, tuple[Reason, ...]]


class Choice(msgspec.Struct, kw_only=True):
    """A set in the making. chosen: by component, None = left out. full: only toolkits that the driver runs in full.

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
        """The version, with its reasons noted. None: not requested, or left to the resolver and not available.

        A Clash where the specification states a version that is not available.
        """
        asked = request(requested)
        if asked.none:
            return None
        if not isinstance(found, Clash):
            self.reasons += found[1]
            return found[0]
        if asked.explicit:
            return found
        source = ", ".join(dict.fromkeys(fact.source for fact in found.between))
        text = f"left out: {found.because}"
        self.reasons.append(Reason(component=found.component, because=text, rule=found.rule, source=source))
        return None


class PlanInput(msgspec.Struct, frozen=True, kw_only=True):
    """What a component is planned from. archive: see Choice."""

    target: Target
    stack: Any
    spec: Any
    archive: Archive | None = None

    @property
    def system(self) -> OperatingSystem:
        """The operating system of the hosts."""
        return self.target.os

    @property
    def apt(self) -> bool:
        """Whether packages are installed by apt; else by dnf."""
        return self.target.os.family == "debian"


class NotFirst(NamedTuple):
    """Why a version that is possible was not chosen."""

    because: str
    rule: str = ""
    between: tuple[Fact, ...] = ()


class Component:
    """One component of the stack; a module of this folder holds one as COMPONENT.

    name: its key in stack.yml, the set and the plan. title: as text. place: its position where components are listed.
    turn: when it is chosen, what it depends on first; its services and files keep that order.
    default: of its key in stack.yml, None = no key. choices: the only values of
    that key, empty = versions. optional: in a set and a plan only if requested.
    required: no set without it. built_for: the component for whose major version it is built.
    partial: an older driver runs it with fewer functions. follows: what decides its version, if it has none of its own.
    part: the component of the plan that holds its packages, empty = no packages.
    nvidia: the folder of NVIDIA's repositories that holds these, SYSTEM for the folder of the host's system.
    in_archive: the archives of distributions that hold them as well; a set from there takes them from it.
    """

    name = ""
    title = ""
    place = 0
    turn = 0
    default: str | None = None
    choices: tuple[str, ...] = ()
    optional = False
    required = False
    built_for = ""
    partial = False
    follows = ""
    part = ""
    nvidia = ""
    in_archive: tuple[str, ...] = ()

    # The specification.

    def check(self, value: str) -> None:
        """Raise ValueError if stack.yml cannot hold this value."""
        request(value)

    def contradictions(self, spec: "StackSpec") -> Iterator[tuple[tuple[str, str], str]]:
        """What of the specification excludes itself on every host: the two keys, and why."""
        yield from ()

    # Versions.

    def versions(self) -> tuple[str, ...]:
        """Every version in the tables as the specification names it, oldest first."""
        return ()

    def newest_first(self, requested: str) -> tuple[str, ...]:
        """The versions that a request allows, newest first."""
        asked = request(requested)
        return tuple(text for text in reversed(self.versions()) if asked.matches(plain(text)))

    def in_order(self, requested: str, spec: "StackSpec") -> tuple[str, ...]:
        """The same, those that the specification prefers first."""
        return self.newest_first(requested)

    def newer(self, version: str) -> tuple[str, ...]:
        """Versions newer than this one, the next first."""
        have = parse(plain(version))
        return tuple(text for text in self.versions() if parse(plain(text)) > have)

    def in_full(self, version: str, driver: str) -> bool:
        """Whether a driver runs all functions of a version."""
        return True

    # The choice.

    def host_clashes(self, target: Target, spec: "StackSpec", archive: Archive | None) -> Iterator[Clash]:
        """What no choice of versions can resolve."""
        yield from ()

    def choose(self, choice: Choice) -> Any:
        """The version for the set, None = left out, or a Clash. Notes its reasons."""
        return None

    def fields(self, chosen: Any) -> dict[str, Any]:
        """The fields of the set."""
        return {self.name: chosen or msgspec.UNSET if self.optional else chosen}

    def value(self, stack: "StackSet") -> str | None:
        """What a set holds, as the specification names it; None = left out."""
        value: str | None = getattr(stack, self.name, None) or None
        return value

    def exact(self, stack: "StackSet") -> str:
        """The value of the specification that names exactly what a set holds."""
        return self.value(stack) or "none"

    def pinned(self, spec: "StackSpec") -> bool:
        """Whether a common set of several groups pins its version."""
        return True

    # The lock.

    def edited(self, locked: "StackSet", found: "StackSet") -> Conflict | None:
        """What of a locked set differs from what its driver and its hosts need."""
        return None

    def group_suffix(self, target: Target) -> str:
        """What the name of a group of hosts ends with."""
        return ""

    # The explanation and the advice.

    def not_first(self, stack: "StackSet", spec: "StackSpec", version: str) -> NotFirst:
        """Why a newer version that is possible was not chosen."""
        reasons = (reason.because for reason in stack.reasons if reason.component == self.name)
        return NotFirst(f"another is chosen: {next(reasons, 'not the first choice')}")

    def advice(self, rule: str, target: Target, spec: "StackSpec", works: Works) -> str | None:
        """What to do about a clash of this component that no other version resolves."""
        return None

    def label(self, stack: "StackSet") -> str | None:
        """Its value as text, None = no line."""
        return self.value(stack) or (None if self.optional else "none")

    # The plan.

    def packages(self, plan: PlanInput) -> dict[str, Any] | None:
        """Packages, holds and what else the component needs; None = not in the plan. Raises PlanGap.

        In addition to packages and holds: services: what has to run; refuse: packages that may not be on the host;
        files; modules: kernel modules by the package that DKMS builds them from, and the device that each makes.
        """
        return None

    def repository(self, plan: PlanInput) -> dict[str, str | None] | None:
        """A package repository of its own."""
        return None

    def folder(self, plan: PlanInput) -> str | None:
        """The folder of NVIDIA's repositories that records show its packages in, None = none."""
        return (
            None
            if plan.stack.source in self.in_archive or not self.nvidia
            else self.nvidia.format(system=plan.system.repository or "")
        )

    def services(self, stack: "StackSet", spec: "StackSpec") -> Iterator[dict[str, Any]]:
        """Rows of the plan's services."""
        yield from ()

    def files(self, plan: PlanInput) -> Iterator[dict[str, Any]]:
        """Rows of the plan's files."""
        yield from ()

    def notes(self, plan: PlanInput) -> Iterator[Reason]:
        """What a reader of the plan has to know."""
        yield from ()

    def expected(self, stack: "StackSet") -> dict[str, str | None]:
        """What a host reports once the plan is applied."""
        return {}

    def container_engines(self, plan: PlanInput) -> tuple[dict[str, Any], ...]:
        """Container engines that are configured for the GPUs where they are installed."""
        return ()


def plain(text: str) -> str:
    """The version without its build: ``2.29.3+cuda12.9`` -> ``2.29.3``."""
    return text.partition("+")[0]
