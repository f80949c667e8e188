"""The plan's components that are there only where a site asks for them, each with what it needs beside packages."""

from collections.abc import Iterable
from typing import Any

from gpucheck.knowledge.options import options
from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.packages import Component, component, package
from gpucheck.stack.rules.options import NEWEST, r23_cuda_majors
from gpucheck.stack.settings.isolation import acs_component
from gpucheck.stack.spec import Wish
from gpucheck.stack.types import Reason, StackSet, Target
from gpucheck.stack.versions import request

GDRDRV = "/etc/modules-load.d/gpucheck-gdrdrv.conf"


def option_components(target: Target, stack: StackSet, wish: Wish) -> dict[str, Component]:
    """Component by name, empty where nothing is asked for: a plan without options says nothing of them.

    Beside packages and holds: services: what has to run; refuse: packages that may not be on the host as well; files;
    modules: kernel modules by the package that DKMS builds them from, and the device that each makes.
    """
    found = {"dcgm": _dcgm(target, stack)} if stack.dcgm else {}
    found |= {"gdrcopy": _gdrcopy(target.os, stack.gdrcopy)} if stack.gdrcopy else {}
    return found | ({"acs": acs_component()} if wish.tuning.acs == "off" else {})


def _dcgm(target: Target, stack: StackSet) -> Component:
    table = options().dcgm
    cuda = r23_cuda_majors(target, stack.driver)
    names = [*table.packages, *(name.format(major=number) for number in cuda for name in table.by_cuda)]
    version = f"{table.epoch}:{stack.dcgm}-{table.revision}"
    return {
        **component([package(target.os, name, version) for name in names]),
        "services": _services([table.service]),
        "refuse": list(table.old),
    }


def _services(names: Iterable[str]) -> list[dict[str, Any]]:
    return [{"name": name, "enabled": True, "state": "started"} for name in names]


def _gdrcopy(system: OperatingSystem, wanted: str) -> Component:
    """The module is loaded at boot by a file of ours; where the packages bring a service, that makes the device."""
    table, manager = options().gdrcopy, "apt" if system.family == "debian" else "dnf"
    names, module_package = table.apt if manager == "apt" else table.dnf, table.module_packages[manager]
    words = {module_package: table.module_word.get(manager, "")}
    rows = [package(system, name, _gdrcopy_version(wanted, words.get(name, ""))) for name in names]
    boot = {"path": GDRDRV, "content": f"{table.module}\n", "mode": "0644"}
    return {
        **component(rows),
        "services": _services(table.services.get(manager, ())),
        "files": [boot],
        "modules": [{"name": table.module, "package": module_package, "device": table.device}],
    }


def _gdrcopy_version(wanted: str, word: str) -> str | None:
    """``2.5.1-1.el9`` with the word ``dkms`` is ``2.5.1-1dkms.el9``."""
    if wanted == NEWEST:
        return None
    revision = request(wanted).package_revision or options().gdrcopy.revision
    number = len(revision) - len(revision.lstrip("0123456789"))
    return f"{request(wanted).version}-{revision[:number]}{word}{revision[number:]}"


def option_notes(stack: StackSet) -> tuple[Reason, ...]:
    """What of the options from a site's own repository rests on names or versions that are not confirmed."""
    if not stack.gdrcopy or stack.gdrcopy == NEWEST or request(stack.gdrcopy).package_revision:
        return ()
    text = f"package revision -{options().gdrcopy.revision} is a guess: state yours, as in gdrcopy: 2.5.1-1.el9"
    return (Reason(component="gdrcopy", because=text, source=", ".join(options().gdrcopy.source), confirmed=False),)
