"""The nearest change that works: what to say beside every refusal, and always tried before it is said."""

from collections.abc import Callable, Iterator
from itertools import combinations

import msgspec

from gpucheck.knowledge import tables
from gpucheck.stack.rules.driver import r13_forward_compatibility
from gpucheck.stack.rules.folders import folder_of
from gpucheck.stack.rules.options import NEWEST
from gpucheck.stack.spec import COMPONENTS, Wish
from gpucheck.stack.types import Clash, Conflict, StackSet, Target
from gpucheck.stack.versions import parse, request

# What helps whatever the tables say.
ALWAYS = {
    "arch": "--arch sbsa, which is what the host of this GPU is",
    "gdrcopy": (
        "build its packages with the project's own scripts (build-deb-packages.sh, build-rpm-packages.sh) or take "
        "prebuilt ones, put them into a signed repository of yours, and name it in stack.yml: repositories: gdrcopy: "
        "{url, key_url, key_fingerprint}; or gdrcopy: none"
    ),
}
Search = Callable[[Target, Wish], StackSet | tuple[Clash, ...]]


def conflicts(target: Target, wish: Wish, clashes: tuple[Clash, ...], search: Search) -> tuple[Conflict, ...]:
    """The clashes as refusals, the first with the change that works; equal ones once."""
    change = nearest_wish(target, wish, clashes, search)
    seen: dict[str, Conflict] = {}
    for clash in clashes:
        seen.setdefault(clash.because, _conflict(target, wish, clash, change, search))
    return tuple(seen.values())


def _conflict(target: Target, wish: Wish, clash: Clash, change: dict[str, str] | None, search: Search) -> Conflict:
    if change:
        words = ", ".join(f"{key} {value}" for key, value in change.items())
        now = ", ".join(f"{key} {getattr(wish, key)}" for key in change)
        advice = f"{words} instead of {now}"
    elif clash.rule == "R24":
        advice = _with_that_branch(target, wish, search)
    else:
        advice = _without_wish(target, wish, clash, search)
    if clash.rule == "R1":
        advice = f"{advice}; {r13_forward_compatibility(target)}"
    return Conflict(
        between=clash.between,
        because=clash.because,
        source="; ".join(dict.fromkeys(fact.source for fact in clash.between)),
        rule=clash.rule,
        try_=advice,
        change=change or {},
    )


def nearest_wish(target: Target, wish: Wish, clashes: tuple[Clash, ...], search: Search) -> dict[str, str] | None:
    """The fewest wishes to change, and to what, so that a set exists; None if no wish would help."""
    for keys in _relaxations(wish, clashes):
        relaxed = msgspec.structs.replace(wish, **dict.fromkeys(keys, "auto"))
        found = search(target, relaxed)
        if isinstance(found, StackSet):
            return {key: _value(found, key) for key in keys}
    return None


def _relaxations(wish: Wish, clashes: tuple[Clash, ...]) -> Iterator[tuple[str, ...]]:
    """Stated wishes to give up: the one that clashes first, then every one, then pairs, then all."""
    stated = [key for key in COMPONENTS if request(getattr(wish, key)).explicit]
    if wish.kernel_module != "auto":
        stated.append("kernel_module")
    if wish.source == "debian":
        stated.append("source")
    named = [clash.component for clash in clashes]
    stated.sort(key=lambda key: named.index(key) if key in named else len(named))
    for count in range(1, len(stated) + 1):
        yield from combinations(stated, count)


def _value(found: StackSet, key: str) -> str:
    if key == "driver":
        return found.driver.version
    if key == "kernel_module":
        return found.driver.kernel_module
    if key == "source":
        return found.source or "nvidia"
    if key == "torch":
        return f"{found.torch.version}+{found.torch.build}" if found.torch else "none"
    if key == "tensorflow":
        return found.tensorflow.version if found.tensorflow else "none"
    if key == "gdrcopy" and found.gdrcopy == NEWEST:
        return "auto"
    value = getattr(found, key)
    return str(value) if value else "none"


def _without_wish(target: Target, wish: Wish, clash: Clash, search: Search) -> str:
    """Advice where no version helps: other hosts, another system, other hardware."""
    if clash.component == "kernel_module" and len(target.models) > 1:
        alone = [
            gpu.name
            for gpu in target.models
            if isinstance(search(msgspec.structs.replace(target, gpus=(gpu,), nvswitches=None), wish), StackSet)
        ]
        if len(alone) == len(target.models):
            return f"put {' and '.join(alone)} into separate hosts: each has a set of its own"
    if clash.component in ALWAYS:
        return ALWAYS[clash.component]
    if clash.rule == "R15" and clash.component == "driver":
        for branch in reversed(tables.drivers().branches):
            asked = msgspec.structs.replace(wish, driver=branch.branch)
            if branch.state == "eol" and isinstance(search(target, asked), StackSet):
                return f"a newer system; or driver {branch.branch}, whose support has ended, at your own risk"
    if clash.component == "os":
        if target.os.explicit_only:
            return "a newer release of the system, or state driver and cuda in stack.yml"
        return "a newer release, such as rocky-9; or end_of_life_os: allow in stack.yml, at your own risk"
    if clash.rule == "R9" and target.models:
        return "replace the GPU: Turing and newer are supported by every current part"
    return "change the hardware or the operating system: no version of any part helps"


def _with_that_branch(target: Target, wish: Wish, search: Search) -> str:
    """Systems of the same distribution, then of the same family, whose folder holds what is lacking here."""
    systems = [row for row in tables.operating_systems().systems if row.id != target.os.id and not row.explicit_only]
    newest_first = sorted(systems, key=lambda row: parse(row.version), reverse=True)
    near = sorted(newest_first, key=lambda row: row.os_id != target.os.os_id)
    works = [
        row.name
        for row in near
        if row.family == target.os.family
        and isinstance(search(msgspec.structs.replace(target, os=row), wish), StackSet)
    ]
    ways = [f"{works[0]}, whose folder holds it"] if works else []
    ways += [otherwise] if (otherwise := folder_of(target).otherwise) else []
    return "; or ".join([*ways, "other GPUs: Turing and newer are supported by every current part"])
