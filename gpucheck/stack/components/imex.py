"""IMEX, the daemon of racks with NVLink between hosts."""

from collections.abc import Iterator
from typing import Any

from gpucheck.knowledge.packages import Archive, packages
from gpucheck.stack.components.base import SYSTEM, Choice, Component
from gpucheck.stack.components.fabric_manager import r17_fabric
from gpucheck.stack.packages import component, fabric_packages, file
from gpucheck.stack.rules.archive import r22_needed, r22_ubuntu_lacks
from gpucheck.stack.settings import imex_files, imex_service
from gpucheck.stack.types import Clash, PlanInput, StackSet, StackSpec, Target


class Imex(Component):
    """IMEX at the driver's version, planned as part of fabric manager, which runs on the switch trays of a rack."""

    name = "imex"
    title = "IMEX"
    part = "fabric_manager"
    place, turn = 25, 91
    nvidia = SYSTEM

    def host_clashes(self, target: Target, spec: StackSpec, archive: Archive | None) -> Iterator[Clash]:
        fabric, reasons = r17_fabric(target)
        if fabric.imex:
            yield from r22_needed(archive, self.name, self.title, reasons[0])
            yield from r22_ubuntu_lacks(spec, self.title, reasons[0])

    def choose(self, choice: Choice) -> Any:
        fabric, reasons = r17_fabric(choice.target)
        if not fabric.imex or choice.driver.kept:
            return None
        choice.reasons += reasons
        return choice.driver.version

    def label(self, stack: StackSet) -> str | None:
        return stack.imex

    def packages(self, plan: PlanInput) -> dict[str, Any]:
        names = packages().fabric.imex if plan.stack.imex else ()
        return component(fabric_packages(plan.system, plan.stack, names))

    def services(self, stack: StackSet, spec: StackSpec) -> Iterator[dict[str, Any]]:
        if stack.imex:
            yield imex_service(spec.imex)

    def files(self, plan: PlanInput) -> Iterator[dict[str, Any]]:
        if plan.stack.imex:
            yield from (file(path, content) for path, content in imex_files(plan.spec.imex))


COMPONENT = Imex()
