"""The flavor of the driver's kernel modules: open or proprietary. It has no version and no packages."""

from typing import Any

import msgspec

from gpucheck.knowledge import tables
from gpucheck.knowledge.tables import Branch
from gpucheck.stack.components.base import Component, Works
from gpucheck.stack.rules.driver import Flavour, is_a
from gpucheck.stack.types import Clash, Fact, StackSet, StackSpec, Target


def r14_flavour(target: Target, wanted: str, branch: Branch | None = None) -> Flavour | Clash:
    """R14: one kernel module flavor must drive every GPU of the host.

    Open needs the GPU System Processor (Turing and newer) and is required from Blackwell and on Grace; one kernel
    loads one flavor.
    """
    # Without a branch only the GPUs are checked.
    needs_proprietary = next((g for g in target.models if g.kernel_module == "proprietary"), None)
    needs_open = next((g for g in target.models if g.kernel_module == "open"), None)
    if needs_proprietary and needs_open:
        return _flavour_clash(
            f"{is_a(needs_proprietary)} and needs the proprietary kernel modules",
            f"{is_a(needs_open)} and needs the open kernel modules",
            "one kernel loads one flavor, so no driver works for both GPUs in one host",
        )
    flavour: Flavour = "proprietary" if needs_proprietary else "open"
    if needs_proprietary is None and needs_open is None:
        usual: Flavour = branch.kernel_modules[0] if branch and wanted == "auto" else "open"
        flavour = "proprietary" if wanted == "proprietary" or _turing_exception(target, branch) else usual
    if wanted not in ("auto", flavour):
        gpu = needs_proprietary or needs_open
        return _flavour_clash(
            f"{is_a(gpu)} and needs the {flavour} kernel modules" if gpu else f"the {flavour} modules are needed",
            f"kernel_module: {wanted} is requested",
            f"the {wanted} modules would install and bind no GPU",
        )
    if branch is not None and flavour not in branch.kernel_modules:
        return _flavour_clash(
            f"branch {branch.branch} has {' and '.join(branch.kernel_modules)} kernel modules only",
            f"the {flavour} kernel modules are needed",
            f"branch {branch.branch} has no {flavour} modules",
        )
    return flavour


def _turing_exception(target: Target, branch: Branch | None) -> bool:
    note = tables.drivers().turing_with_proprietary_below
    if branch is None or int(branch.branch) >= int(note.branch):
        return False
    return any(gpu.name == note.gpu for gpu in target.models)


def _flavour_clash(one: str, other: str, because: str) -> Clash:
    source = "driver-install-guide, open-gkm"
    return Clash(
        component="kernel_module", rule="R14", between=(Fact(one, source), Fact(other, source)), because=because
    )


class KernelModule(Component):
    """The flavor, chosen with the driver."""

    name = "kernel_module"
    place = 15
    default = "auto"
    choices = ("auto", "open", "proprietary")

    def fields(self, chosen: Any) -> dict[str, Any]:
        return {}

    def value(self, stack: StackSet) -> str:
        return stack.driver.kernel_module

    def label(self, stack: StackSet) -> None:
        """Return None: the line of the driver includes it."""

    def advice(self, rule: str, target: Target, spec: StackSpec, works: Works) -> str | None:
        if len(target.models) < 2:
            return None
        each = [msgspec.structs.replace(target, gpus=(gpu,), nvswitches=None) for gpu in target.models]
        if not all(works(alone, spec) for alone in each):
            return None
        names = " and ".join(gpu.name for gpu in target.models)
        return f"put {names} into separate hosts: each has its own set"


COMPONENT = KernelModule()
