"""Fabric manager and the NVLink subnet manager: NVSwitch boards need them at the driver's version."""

from collections.abc import Iterator
from typing import Any

import msgspec

from gpucheck.knowledge import gpu_table
from gpucheck.knowledge.packages import Archive, packages
from gpucheck.stack.components.base import SYSTEM, Choice, Component
from gpucheck.stack.packages import component, fabric_packages, file, package, started
from gpucheck.stack.rules.archive import r22_needed, r22_ubuntu_lacks, ubuntu_fabric
from gpucheck.stack.types import Clash, Conflict, Fabric, Fact, PlanInput, Reason, Reasons, StackSet, StackSpec, Target
from gpucheck.stack.versions import parse

NVLINK5_KERNEL = "5.17"


def r17_fabric(target: Target) -> tuple[Fabric, Reasons]:
    """R17: NVSwitch and NVLink 5 boards need fabric manager at exactly the driver's version; racks need IMEX."""
    kinds = {gpu.fabric for gpu in target.models} - {None}
    source = "fabric-manager-guide, driver-install-guide"

    def why(text: str, component: str = "fabric_manager", *, confirmed: bool = True) -> Reason:
        return Reason(component=component, because=text, rule="R17", source=source, confirmed=confirmed)

    if "imex" in kinds:
        text = "compute tray of a rack: fabric manager runs on the switch trays, IMEX runs here"
        return Fabric(imex=True), (why(text, "imex"),)
    if "nvlink5" in kinds:
        needs = "fabric manager at the driver's version, the subnet manager nvlsm, and ib_umad loaded"
        reasons = [why(f"NVLink 5 board: needs {needs}")]
        if parse(target.os.kernel) < parse(NVLINK5_KERNEL):
            text = f"{target.os.name} has kernel {target.os.kernel}; NVLink 5 needs {NVLINK5_KERNEL} or an EL backport"
            reasons.append(msgspec.structs.replace(why(text, confirmed=False), source="public-installers"))
        return Fabric(fabric_manager=True, subnet_manager=True), tuple(reasons)
    if target.nvswitches:
        text = "NVSwitch devices on the PCI bus: needs fabric manager at exactly the driver's version"
        return Fabric(fabric_manager=True), (why(text),)
    if "nvswitch" not in kinds:
        return Fabric(), ()
    if target.nvswitches == 0:
        text = "no NVSwitch on the PCI bus: no fabric manager here (in a virtual machine it runs on the host)"
        return Fabric(), (why(text),)
    count = sum(gpu.fabric == "nvswitch" for gpu in target.gpus)
    if count >= gpu_table().nvswitch_from_gpus:
        text = f"{count} SXM GPUs, assumed to be an NVSwitch board (the PCI bus was not read): needs fabric manager"
        return Fabric(fabric_manager=True), (why(text, confirmed=False),)
    text = f"{count} SXM GPUs, assumed to be a board without NVSwitch (the PCI bus was not read)"
    return Fabric(), (why(text, confirmed=False),)


class FabricManager(Component):
    """Fabric manager, at exactly the driver's version and only if the board needs it."""

    name = part = "fabric_manager"
    title = "fabric manager"
    place, turn = 20, 90
    nvidia = SYSTEM
    in_archive = ("ubuntu",)

    def host_clashes(self, target: Target, spec: StackSpec, archive: Archive | None) -> Iterator[Clash]:
        fabric, reasons = r17_fabric(target)
        if fabric.fabric_manager:
            yield from r22_needed(archive, self.name, self.title, reasons[0])
        if fabric.subnet_manager:
            yield from r22_ubuntu_lacks(spec, "the NVLink subnet manager", reasons[0])

    def choose(self, choice: Choice) -> Any:
        fabric, reasons = r17_fabric(choice.target)
        if fabric.imex or choice.driver.kept:
            return None
        choice.reasons += reasons
        return (choice.driver.version, fabric.subnet_manager) if fabric.fabric_manager else None

    def fields(self, chosen: Any) -> dict[str, Any]:
        version, subnet_manager = chosen or (None, False)
        return {self.name: version, "subnet_manager": subnet_manager}

    def label(self, stack: StackSet) -> str | None:
        extra = " with the NVLink subnet manager" if stack.subnet_manager else ""
        return f"{stack.fabric_manager}{extra}" if stack.fabric_manager else None

    def edited(self, locked: StackSet, found: StackSet) -> Conflict | None:
        fabric = (found.fabric_manager, found.subnet_manager, found.imex)
        if fabric == (locked.fabric_manager, locked.subnet_manager, locked.imex):
            return None
        edited = Fact(f"the lock states fabric manager {locked.fabric_manager}, IMEX {locked.imex}", "the lock")
        source = "fabric-manager-guide"
        needed = Fact(f"this board needs fabric manager {found.fabric_manager}, IMEX {found.imex}", source)
        because = "fabric manager must be exactly the driver's version, and only if the board needs it"
        try_ = "run gpucheck stack lock again instead of editing the lock"
        return Conflict(between=(edited, needed), because=because, source=source, try_=try_, rule="R17")

    def group_suffix(self, target: Target) -> str:
        """Return the suffix for a board that is not the usual one for these GPUs."""
        usual, actual = r17_fabric(msgspec.structs.replace(target, nvswitches=None))[0], r17_fabric(target)[0]
        return "" if usual == actual else ("-nvswitch" if actual.fabric_manager else "-no-nvswitch")

    def packages(self, plan: PlanInput) -> dict[str, Any]:
        """Return the packages; those of the system or of a vendor's RDMA software are not held."""
        if not plan.stack.fabric_manager:
            return component([])
        if plan.stack.source in self.in_archive:
            return component(ubuntu_fabric(plan))
        table = packages().fabric
        found = fabric_packages(plan.system, plan.stack, table.fabric_manager)
        if plan.stack.subnet_manager:
            extra = table.subnet_manager.apt if plan.apt else table.subnet_manager.dnf
            found += [package(plan.system, name, None) for name in extra]
        rows = component(found)
        return {**rows, "holds": [name for name in rows["holds"] if name not in table.subnet_manager.of_the_system]}

    def services(self, stack: StackSet, spec: StackSpec) -> Iterator[dict[str, Any]]:
        if stack.fabric_manager:
            yield from started(["nvidia-fabricmanager"])

    def files(self, plan: PlanInput) -> Iterator[dict[str, Any]]:
        """Yield the file that loads the module through which the subnet manager reaches the switches."""
        if plan.stack.subnet_manager:
            yield file("/etc/modules-load.d/gpucheck-ib_umad.conf", packages().fabric.boot_module + "\n")

    def notes(self, plan: PlanInput) -> Iterator[Reason]:
        if plan.stack.subnet_manager and not plan.archive:
            text = "the version of nvlsm is not known: the newest is installed, then held"
            yield Reason(component=self.name, because=text, source="cuda-repo", confirmed=False)

    def expected(self, stack: StackSet) -> dict[str, str | None]:
        return {"fabric_manager_version": stack.fabric_manager}


COMPONENT = FabricManager()
