"""What of a plan no public document shows in NVIDIA's folders: said by the plan, package by package."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gpucheck.knowledge.packages import packages
from gpucheck.knowledge.recorded import TOOLKIT, is_recorded, nearest, recorded
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.packages import PlanGap, components, module_stream
from gpucheck.stack.plan.archive import archive_components, archive_of_set
from gpucheck.stack.plan.options import option_components
from gpucheck.stack.spec import Wish
from gpucheck.stack.types import Reason, StackSet, Target, Unconfirmed

SOURCE = "cuda-repo"
# Parts of NVIDIA's folders; the rest comes from a site's own repository or from the system.
PARTS = ("driver", "fabric_manager", "cuda", "cudnn", "nccl", "container_toolkit", "dcgm")
# What NVIDIA's repositories still supply where an archive holds the driver.
BESIDE_AN_ARCHIVE = ("container_toolkit", "dcgm")


def unconfirmed(system: OperatingSystem, stack: StackSet, parts: Mapping[str, Any]) -> tuple[Unconfirmed, ...]:
    """Folder, module stream and packages without a record. parts: components of the plan."""
    folder = system.repository or ""
    found = [] if stack.source else [*_folder(folder, stack.arch), *_stream(system, folder, stack)]
    for part in BESIDE_AN_ARCHIVE if stack.source else PARTS:
        where = TOOLKIT if part == "container_toolkit" else folder
        for row in parts.get(part, {}).get("packages", ()):
            if row["name"] in packages().fabric.subnet_manager.of_the_system:
                continue
            if not is_recorded(where, stack.arch, row["name"], row["version"]):
                because = _because(where, stack.arch, row["name"], row["version"])
                found.append(Unconfirmed(component=part, spec=row["spec"], because=because))
    return tuple(found)


def with_unconfirmed(target: Target, stack: StackSet, wish: Wish) -> StackSet:
    """The set with what its plan would say to be unconfirmed; a gap in the tables is one of them."""
    archive = archive_of_set(target.os, stack)
    try:
        own = archive_components(target.os, stack, archive) if archive else components(target.os, stack)
        said = unconfirmed(target.os, stack, own | option_components(target, stack, wish))
    except PlanGap as gap:
        said = (Unconfirmed(component="driver", spec=stack.driver.version, because=f"{gap}: {gap.advice}"),)
    return msgspec.structs.replace(stack, unconfirmed=said)


def reasons(said: tuple[Unconfirmed, ...]) -> tuple[Reason, ...]:
    """The same in words, one for each part."""
    by_part: dict[str, list[str]] = {}
    for row in said:
        by_part.setdefault(row.component, []).append(row.spec)
    return tuple(
        Reason(
            component=part, because=f"unconfirmed, no record shows {', '.join(specs)}", source=SOURCE, confirmed=False
        )
        for part, specs in by_part.items()
    )


def _folder(folder: str, arch: str) -> Iterator[Unconfirmed]:
    if arch not in recorded().folders.get(folder, {}) and arch not in packages().folders.get(folder, {}):
        because = "no record shows this folder for this architecture"
        yield Unconfirmed(component="repositories", spec=f"folder {folder}/{arch}", because=because)


def _stream(system: OperatingSystem, folder: str, stack: StackSet) -> Iterator[Unconfirmed]:
    stream = module_stream(system, stack)
    if stream and stream["stream"] not in recorded().streams.get(folder, ()):
        because = f"no record shows this module stream in {folder}"
        yield Unconfirmed(component="driver", spec=f"{stream['module']}:{stream['stream']}", because=because)


def _because(folder: str, arch: str, name: str, version: str | None) -> str:
    text = f"no record shows it in {folder} for {arch}"
    near = nearest(folder, arch, name, version) if version else ""
    return f"{text}; seen in {near}" if near else text
