"""Rules about a distribution's archive as the package source: one version per component, not every component."""

from collections.abc import Iterator

from gpucheck.knowledge.packages import Archive, archives
from gpucheck.knowledge.tables import Branch, OperatingSystem
from gpucheck.stack.rules.driver import is_a
from gpucheck.stack.types import Clash, Fact, Reason, StackSet, StackSpec, Target
from gpucheck.stack.versions import request

RULE, SOURCE = "R22", "debian-archive"


def archive_of(system: OperatingSystem, spec: StackSpec | StackSet) -> Archive | None:
    """Return the requested archive; None: the packages come from NVIDIA, or there is no such archive."""
    if spec.source != "debian":
        return None
    return next((archive for archive in archives() if archive.os == system.id), None)


def r22_host(target: Target, spec: StackSpec) -> Iterator[Clash]:
    """R22: with `source: debian` a host gets the versions in the archive of its release, or is unsupported.

    The archive must be known and have the driver for the host's architecture, and the GPUs must work with proprietary
    modules and without fabric manager.
    """
    if spec.source != "debian":
        return
    archive, requested = archive_of(target.os, spec), Fact("source: debian is requested", "the specification")
    if archive is None:
        known = ", ".join(archive.os for archive in archives())
        fact = Fact(f"the archives known are those of {known}, and this host runs {target.os.name}", SOURCE)
        yield _clash("source", (requested, fact), f"source: debian does not work for {target.os.name}")
        return
    if target.arch not in archive.architectures:
        fact = Fact(f"the archive of {target.os.name} was read for {', '.join(archive.architectures)} only", SOURCE)
        because = f"the contents of the archive for {target.arch} are not known"
        yield _clash("source", (requested, fact), because, unknown=True)
    needs_open = next((gpu for gpu in target.models if gpu.kernel_module == "open"), None)
    if needs_open or spec.kernel_module == "open":
        who = (
            f"{is_a(needs_open)} and needs the open kernel modules"
            if needs_open
            else "kernel_module: open is requested"
        )
        because = f"the open modules of the archive are {archive.open_modules}, its driver is {archive.driver}"
        fact = Fact(f"{because}, and both must be one version", SOURCE)
        between = (Fact(who, "open-gkm, the specification"), fact)
        yield _clash("source" if needs_open else "kernel_module", between, because)


def r22_needed(archive: Archive | None, component: str, title: str, reason: Reason) -> Iterator[Clash]:
    """R22: a host that needs a component missing from the archive is unsupported."""
    if archive is not None and component in archive.absent:
        between, because = _lacks(archive, title, Fact(reason.because, reason.source))
        yield _clash("source", between, because)


def r22_driver(archive: Archive, branch: Branch, wanted: str) -> tuple[str, Reason] | Clash:
    """R22: the archive's driver is the only one; a newer release of its branch is stated with its package revision.

    The statement is needed after the archive has replaced the release in the tables.
    """
    requested = request(wanted)
    if requested.auto or requested.matches(archive.driver):
        ended = f"NVIDIA ended it ({', '.join(branch.eol.values())}); " if branch.state == "eol" else ""
        kept = f"{archive.maintained_by} updates it"
        text = f"{archive.driver} is the driver of the archive of {archive.os}, branch {branch.branch}: {ended}{kept}"
        return archive.driver, Reason(component="driver", because=text, rule=RULE, source=SOURCE)
    if requested.package_revision and requested.prefix[0] == int(branch.branch):
        text = f"{requested.version} as requested; the tables have {archive.driver} in the archive of {archive.os}"
        stated = "the specification"
        return requested.version, Reason(component="driver", because=text, rule=RULE, source=stated, confirmed=False)
    between = (
        Fact(f"driver {wanted} is requested", "the specification"),
        Fact(f"the archive of {archive.os} has driver {archive.driver} and no other", SOURCE),
    )
    because = f"the archive of {archive.os} has no driver {wanted}"
    return Clash(component="driver", rule=RULE, between=between, because=because)


def r22_flavour(archive: Archive) -> Reason:
    """R22: the modules are proprietary, as the archive's open ones are of another release than its libraries."""
    text = f"proprietary: the open modules of the archive are {archive.open_modules}, which is not the driver's version"
    return Reason(component="kernel_module", because=text, rule=RULE, source=SOURCE)


def r22_cuda(archive: Archive, wanted: str) -> str | Clash:
    """R22: the CUDA toolkit is the one of the archive; the request must match it."""
    requested = request(wanted)
    if requested.none or requested.matches(archive.cuda):
        return "none" if requested.none else archive.cuda
    between = (
        Fact(f"cuda {wanted} is requested", "the specification"),
        Fact(f"the archive of {archive.os} has CUDA {archive.cuda} and no other", SOURCE),
    )
    because = f"the archive of {archive.os} has no CUDA {wanted}"
    return Clash(component="cuda", rule=RULE, between=between, because=because)


def r22_absent(archive: Archive | None, component: str, title: str, wanted: str) -> Clash | None:
    """R22: a component missing from the archive is omitted; if a version is requested, there is no set."""
    if archive is None or component not in archive.absent:
        return None
    stated = Fact(f"{component} is {wanted}, and source is debian", "the specification")
    between, because = _lacks(archive, title, stated)
    return _clash(component, between, because)


def _lacks(archive: Archive, title: str, needed: Fact) -> tuple[tuple[Fact, Fact], str]:
    because = f"the archive of {archive.os} has no {title}"
    return (needed, Fact(because, SOURCE)), because


def _clash(component: str, between: tuple[Fact, Fact], because: str, *, unknown: bool = False) -> Clash:
    return Clash(component=component, rule=RULE, between=between, because=because, unknown=unknown)
