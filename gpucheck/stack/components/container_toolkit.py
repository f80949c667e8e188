"""The container toolkit, and the container engines that it configures."""

from typing import Any

import msgspec

from gpucheck.knowledge.packages import packages
from gpucheck.knowledge.tables import TOOLKIT, recorded_versions
from gpucheck.stack.components.base import Choice, Component
from gpucheck.stack.packages import component, package, repository, uname_arch
from gpucheck.stack.rules.archive import r22_absent
from gpucheck.stack.rules.libraries import seen_reason, stated_exactly
from gpucheck.stack.types import Clash, Fact, PlanInput, Reason, Reasons
from gpucheck.stack.versions import request

TITLE = "container toolkit"


class ContainerToolkit(Component):
    """All of its packages are at one version, from a repository of its own."""

    name = part = "container_toolkit"
    title = TITLE
    place, turn = 60, 60
    nvidia = TOOLKIT
    default = "auto"

    def choose(self, choice: Choice) -> Any:
        """Choose the version; with an archive, only a stated version comes from NVIDIA's repository."""
        wanted = choice.spec.container_toolkit
        absent = r22_absent(choice.archive, self.name, TITLE, wanted) if request(wanted).auto else None
        return choice.settle(absent or choose_container_toolkit(wanted), wanted)

    def packages(self, plan: PlanInput) -> dict[str, Any]:
        version, table = plan.stack.container_toolkit, packages().container_toolkit
        names = table.packages if version else ()
        return component([package(plan.system, name, f"{version}-{table.revision}") for name in names])

    def repository(self, plan: PlanInput) -> dict[str, str | None] | None:
        if not plan.stack.container_toolkit:
            return None
        box, arch = packages().repositories.container_toolkit, plan.target.arch
        deb_arch = "amd64" if arch == "x86_64" else "arm64"
        url = (box.apt_url if plan.apt else box.dnf_url).format(deb_arch=deb_arch, uname_arch=uname_arch(arch))
        keyring = box.keyring if plan.apt else None
        return repository("nvidia-container-toolkit", url, (box.key_url, box.fingerprint), keyring, box.signed)

    def container_engines(self, plan: PlanInput) -> tuple[dict[str, Any], ...]:
        """Return the engines to configure; each host configures those that are installed on it."""
        if plan.stack.container_toolkit is None or plan.spec.container_engines == "leave":
            return ()
        return tuple(msgspec.to_builtins(row) for row in packages().container_toolkit.engines)


def choose_container_toolkit(wanted: str) -> tuple[str, Reasons] | Clash:
    """Return the newest version that the guide names, or exactly the stated one."""
    requested, name = request(wanted), COMPONENT.name
    known = packages().container_toolkit.versions
    for version in reversed(known):
        if requested.matches(version):
            text = "the version whose four packages the installation guide names"
            return version, (Reason(component=name, because=text, source="container-toolkit-guide"),)
    # Never chosen by auto: the guide does not name it, but a report shows it installed.
    seen = recorded_versions(TOOLKIT, packages().container_toolkit.packages[0])
    stated = stated_exactly(wanted, 3)
    if stated:
        return stated, (seen_reason(name, stated, seen=stated in seen),)
    one = Fact(f"container toolkit {wanted} is requested", "the specification")
    other = Fact(f"the tables hold {', '.join(known)}", "container-toolkit-guide")
    because = f"no container toolkit {wanted} is known"
    return Clash(component="container_toolkit", rule="R18", between=(one, other), because=because, unknown=True)


COMPONENT = ContainerToolkit()
