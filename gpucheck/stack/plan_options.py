"""The plan's components that are there only where a site asks for them, each with what it needs beside packages."""

from gpucheck.knowledge.options import options
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.plan_packages import Component, component, package
from gpucheck.stack.rules_options import r23_cuda_majors
from gpucheck.stack.types import Reason, StackSet, Target


def option_components(target: Target, stack: StackSet) -> dict[str, Component]:
    """Component by name, empty where nothing is asked for: a plan without options says nothing of them.

    Beside packages and holds: services: what has to run; refuse: packages that may not be on the host as well.
    """
    return {"dcgm": _dcgm(target, stack)} if stack.dcgm else {}


def _dcgm(target: Target, stack: StackSet) -> Component:
    table = options().dcgm
    cuda = r23_cuda_majors(target, stack.driver)
    names = [*table.packages, *(name.format(major=number) for number in cuda for name in table.by_cuda)]
    version = f"{table.epoch}:{stack.dcgm}-{table.revision}"
    service = {"name": table.service, "enabled": True, "state": "started"}
    return {
        **component([package(target.os, name, version) for name in names]),
        "services": [service],
        "refuse": list(table.old),
    }


def option_notes(system: OperatingSystem, stack: StackSet) -> tuple[Reason, ...]:
    """What of the options rests on names or versions that are not confirmed."""
    if not stack.dcgm:
        return ()
    table = options().dcgm
    if system.repository in table.seen_in:
        return ()
    text = f"its packages were not seen in the {system.repository} folder with epoch {table.epoch} and this revision"
    return (Reason(component="dcgm", because=text, source="cuda-repo", confirmed=False),)
