"""Rules about Ubuntu's own archive as the source of the driver: everything else still comes from NVIDIA."""

import re
from collections.abc import Iterator

from gpucheck.knowledge.packages import UbuntuSystem, ubuntu
from gpucheck.knowledge.tables import Branch, OperatingSystem
from gpucheck.stack.rules.driver import r4_r9_branch_window, r18_branches
from gpucheck.stack.types import Clash, Fact, Reason, StackSpec, Target
from gpucheck.stack.versions import request

RULE, SOURCE, UBUNTU = "R22", "ubuntu-archive", "ubuntu"
# 0ubuntu0.24.04.1 is a revision for Ubuntu 24.04; 0ubuntu1 names no release.
FOR_RELEASE = re.compile(r"ubuntu\d+\.(?P<release>\d\d\.\d\d)(\.|$)")
REQUESTED = Fact("source: ubuntu is requested", "the specification")


def ubuntu_system(system: OperatingSystem) -> UbuntuSystem | None:
    """What is known of the archive of this release, None where nothing is."""
    return next((row for row in ubuntu().systems if row.os == system.id), None)


def r22_ubuntu_host(target: Target, spec: StackSpec) -> Iterator[Clash]:
    """R22: with `source: ubuntu` the driver is stated with its package revision, as the archive drops old releases.

    The release of Ubuntu and the architecture must be known to have signed modules.
    """
    if spec.source != UBUNTU:
        return
    row = ubuntu_system(target.os)
    if row is None:
        known = ", ".join(one.os for one in ubuntu().systems)
        fact = Fact(f"the archives known are those of {known}, and this host runs {target.os.name}", SOURCE)
        yield _clash("source", fact, f"source: ubuntu does not support {target.os.name}")
        return
    if target.arch not in ubuntu().architectures:
        text = f"Canonical's guide names signatures of modules for {', '.join(ubuntu().architectures)} alone"
        because = f"that the modules of Ubuntu's archive for {target.arch} are signed was not read"
        yield _clash("source", Fact(text, SOURCE), because)
    if spec.driver_extra:
        because = f"the packages of driver_extra in the archive of {target.os.name} are not known"
        yield _clash("driver", Fact(f"driver_extra is {', '.join(spec.driver_extra)}", "the specification"), because)
    yield from _stated(target, spec, row)


def r22_ubuntu_lacks(spec: StackSpec, title: str, needed: Reason) -> Iterator[Clash]:
    """R22: boards that need the NVLink subnet manager, and racks that need IMEX, get their driver from NVIDIA."""
    if spec.source == UBUNTU:
        because = f"Ubuntu's archive is not known to hold {title}"
        between = (Fact(needed.because, needed.source), Fact(because, SOURCE))
        yield Clash(component="source", rule=RULE, between=between, because=because)


def r22_ubuntu_branch(target: Target, spec: StackSpec, branch: Branch) -> Iterator[Reason]:
    """R22: the driver is that of Ubuntu's archive, whose modules Canonical builds and signs for each kernel."""
    row = ubuntu_system(target.os) if spec.source == UBUNTU else None
    if row is None:
        return
    text = f"from the archive of {target.os.name}: its modules are built for each kernel and signed by Canonical"
    yield Reason(component="driver", because=f"{text}, so Secure Boot needs no key of yours", rule=RULE, source=SOURCE)
    if branch.branch not in row.branches:
        text = f"branch {branch.branch} was not seen in the archive of {target.os.name}; {', '.join(row.branches)} was"
        yield Reason(component="driver", because=text, rule=RULE, source=SOURCE, confirmed=False)


def _stated(target: Target, spec: StackSpec, row: UbuntuSystem) -> Iterator[Clash]:
    revision = request(spec.driver).package_revision
    found = FOR_RELEASE.search(revision)
    if found and found["release"] != target.os.version:
        stated = Fact(f"driver {spec.driver} is of the archive of Ubuntu {found['release']}", "the specification")
        between = (stated, Fact(f"this host runs {target.os.name}", "the facts"))
        because = f"the archive of {target.os.name} has no packages of Ubuntu {found['release']}"
        way = "give the hosts of each release an inventory and a stack.yml of their own, or state this release's driver"
        yield Clash(component="driver", rule=RULE, between=between, because=because, way=way)
    if not revision:
        branch = _branch(target, spec, row)
        because = f"which release of driver {branch} the archive of {target.os.name} holds now is not known"
        package = ubuntu().asked_by.format(branch=branch)
        way = (
            f"ask on a host with: apt-cache madison {package} (after apt update), and state that version in stack.yml, "
            f"in the form driver: {branch}.95.05-0ubuntu0.{target.os.version}.1"
        )
        fact = Fact("the archive drops a release when it publishes the next", SOURCE)
        between = (Fact(f"driver is {spec.driver}, without package revision", "the specification"), fact)
        yield Clash(component="driver", rule=RULE, between=between, because=because, unknown=True, way=way)


def _branch(target: Target, spec: StackSpec, row: UbuntuSystem) -> str:
    """The branch to ask for: the one that is stated, else the best of those in the archive that drive the GPUs."""
    for branch in r18_branches(spec.prefer, spec.driver):
        stated = bool(request(spec.driver).prefix)
        drives = not any(r4_r9_branch_window(gpu, branch.branch) for gpu in target.models)
        if drives and (stated or branch.branch in row.branches):
            return branch.branch
    return row.branches[0]


def _clash(component: str, fact: Fact, because: str) -> Clash:
    return Clash(
        component=component, rule=RULE, between=(REQUESTED, fact), because=because, unknown=component == "driver"
    )
