"""From GPUs and an operating system to one coherent set, or the two facts that clash and the nearest change that works.

The domain is small (a handful of branches, some dozen releases of each part), so the search is exhaustive: drivers are
tried best first, and given a driver every other part is chosen by itself. Nothing here touches a machine.
"""

from collections.abc import Iterator, Sequence

import msgspec

from gpucheck.knowledge import tables
from gpucheck.knowledge.archives import Archive
from gpucheck.knowledge.tables import Branch
from gpucheck.stack.advice import conflicts
from gpucheck.stack.parts import Chosen, container_toolkit, libraries, part
from gpucheck.stack.rules import archive as archive_rules
from gpucheck.stack.rules import driver as driver_rules
from gpucheck.stack.rules import folders as folder_rules
from gpucheck.stack.rules import options as option_rules
from gpucheck.stack.rules import wheels as wheel_rules
from gpucheck.stack.spec import Wish
from gpucheck.stack.targets import target_of
from gpucheck.stack.types import (
    Clash,
    DriverChoice,
    Fact,
    Reason,
    Refusal,
    StackSet,
    Target,
)
from gpucheck.stack.versions import request


def resolve(
    gpus: Sequence[str],
    os: str,
    arch: str | None = None,
    wish: Wish | None = None,
    *,
    nvswitches: int | None = None,
) -> StackSet | Refusal:
    """The set for GPUs named by people or by PCI id, on an operating system such as ``ubuntu-22.04``.

    arch None: that of the GPUs (Grace is sbsa), else x86_64. Raises UnknownInput with what was probably meant.
    """
    return resolve_target(target_of(gpus, os, arch, nvswitches=nvswitches), wish or Wish())


def resolve_target(target: Target, wish: Wish) -> StackSet | Refusal:
    """The set for a kind of host, or why there is none with the nearest change that works."""
    found = search(target, wish)
    if isinstance(found, StackSet):
        return found
    unknown = all(clash.unknown for clash in found)
    return Refusal(conflicts=conflicts(target, wish, found, search), unknown=unknown)


def search(target: Target, wish: Wish) -> StackSet | tuple[Clash, ...]:
    """The set, or the clashes that leave none; the clash of the best candidate first."""
    clashes = list(_host_clashes(target, wish))
    if clashes:
        return tuple(clashes)
    candidates: list[tuple[DriverChoice, tuple[Reason, ...]]] = []
    archive = archive_rules.archive_of(target.os, wish)
    for branch in _branches(wish, archive):
        candidate = _driver(target, wish, branch, archive)
        if isinstance(candidate, Clash):
            clashes.append(candidate)
        else:
            candidates.append(candidate)
    if not candidates:
        return tuple(clashes) or (_no_branch(wish.driver),)
    # First only sets in which the toolkit has its own driver floor met (R2), then by minor version compatibility (R1).
    for full in (True, False):
        for driver, reasons in candidates:
            found = _complete(target, wish, driver, reasons, full=full)
            if isinstance(found, StackSet):
                return found
            clashes.append(found)
    explained = [c for c in clashes if c.unknown or (c.rule != "R2" and c.component != "driver")]
    return tuple(explained or clashes)


def _host_clashes(target: Target, wish: Wish) -> Iterator[Clash]:
    """What no choice of versions can heal."""
    today = tables.operating_systems().as_of
    old = driver_rules.end_of_life(target.os, today)
    if old and wish.end_of_life_os == "refuse":
        yield old
    if target.os.explicit_only and not (request(wish.driver).explicit and request(wish.cuda).explicit):
        yield Clash(
            component="os",
            rule="R15",
            between=(
                Fact(target.os.explicit_only, "driver-install-guide"),
                Fact("driver and cuda are left to the resolver", "the wish"),
            ),
            because=f"on {target.os.name} the site must state driver and cuda itself",
        )
    for clash in (driver_rules.r20_architecture(target), *map(driver_rules.r9_architecture_ended, target.models)):
        if clash:
            yield clash
    flavour = driver_rules.r14_flavour(target, wish.kernel_module)
    if isinstance(flavour, Clash):
        yield flavour
    yield from archive_rules.r22_host(target, wish)
    yield from option_rules.r23_gdrcopy(wish)


def _branches(wish: Wish, archive: Archive | None) -> tuple[Branch, ...]:
    if archive is None:
        return driver_rules.r18_branches(wish.prefer, wish.driver)
    number = archive.driver.partition(".")[0]
    return tuple(branch for branch in tables.drivers().branches if branch.branch == number)


def _driver(target: Target, wish: Wish, branch: Branch, archive: Archive | None) -> Chosen[DriverChoice] | Clash:
    """The driver of one branch with its flavour, or the first rule that forbids the branch."""
    for check in (
        *(driver_rules.r4_r9_branch_window(gpu, branch.branch) for gpu in target.models),
        driver_rules.r15_kernel(target.os, branch),
    ):
        if check:
            return check
    if archive is not None:
        return _archive_driver(wish, branch, archive)
    missing = folder_rules.r24_branch(target, branch)
    if missing:
        return missing
    flavour = driver_rules.r14_flavour(target, wish.kernel_module, branch)
    if isinstance(flavour, Clash):
        return flavour
    version, reason = driver_rules.r18_version(branch, wish.driver)
    if isinstance(reason, Clash):
        return reason
    choice = DriverChoice(
        branch=branch.branch,
        version=version,
        kernel_module=flavour,
        revision=request(wish.driver).package_revision or None,
    )
    return choice, (reason, *_driver_reasons(target, branch, choice))


def _archive_driver(wish: Wish, branch: Branch, archive: Archive) -> Chosen[DriverChoice] | Clash:
    found = archive_rules.r22_driver(archive, branch, wish.driver)
    if isinstance(found, Clash):
        return found
    version, reason = found
    revision = request(wish.driver).package_revision or None
    choice = DriverChoice(branch=branch.branch, version=version, kernel_module="proprietary", revision=revision)
    return choice, (reason, archive_rules.r22_flavour(archive))


def _driver_reasons(target: Target, branch: Branch, choice: DriverChoice) -> Iterator[Reason]:
    last = next((gpu for gpu in target.models if gpu.last_driver_branch), None)
    if last:
        text = f"{driver_rules.is_a(last)}: branch {last.last_driver_branch} is its last"
        yield Reason(component="driver", because=text, rule="R9", source="arch-matrix")
    weak = next(
        (gpu for gpu in target.models if gpu.first_driver.branch == branch.branch and gpu.first_driver.is_ != "proven"),
        None,
    )
    if weak:
        text = f"that branch {branch.branch} drives {weak.name} is {weak.first_driver.is_}"
        yield Reason(component="driver", because=text, rule="R9", source="open-gkm", confirmed=False)
    if branch.state == "eol":
        ended = ", ".join(f"{date} says {who}" for who, date in branch.eol.items())
        yield Reason(
            component="driver",
            because=f"branch {branch.branch} has ended ({ended}); it is taken because it was asked for",
            rule="R18",
            source="endoflife",
            confirmed=False,
        )
    needs = next((gpu for gpu in target.models if gpu.kernel_module == choice.kernel_module), None)
    if needs:
        text = f"{driver_rules.is_a(needs)} and needs the {choice.kernel_module} modules"
    else:
        text = "every GPU here can use either flavour; open is NVIDIA's default from branch 560"
        if choice.kernel_module == "proprietary":
            text = "proprietary: asked for, or safer for this GPU on an old branch"
    yield Reason(component="kernel_module", because=text, rule="R14", source="driver-install-guide, open-gkm")
    if target.os.id in tables.drivers().not_listed_by_nvidia:
        text = f"NVIDIA does not list {target.os.name}; its packages for {target.os.repository} are used, built by DKMS"
        yield Reason(component="driver", because=text, rule="R15", source="driver-install-guide", confirmed=False)


def _assumptions(target: Target) -> Iterator[Reason]:
    for text in target.taken:
        yield Reason(component="gpus", because=text, rule="R17", source="the wish", confirmed=False)
    for gpu in target.models:
        if gpu.general_knowledge:
            text = f"{driver_rules.is_a(gpu)}: known in general, not from a source that was read"
            yield Reason(component="gpus", because=text, rule="R9", source="spec-lists", confirmed=False)


def _no_branch(wanted: str) -> Clash:
    known = ", ".join(b.branch for b in tables.drivers().branches if b.state == "supported" and b.last)
    return Clash(
        component="driver",
        rule="R18",
        between=(
            Fact(f"driver {wanted} is asked for", "the wish"),
            Fact(f"the branches known to be supported are {known}", "nv-supported-drivers-615, endoflife"),
        ),
        because=f"no driver {wanted} is known",
        unknown=True,
    )


def _complete(
    target: Target, wish: Wish, driver: DriverChoice, reasons: tuple[Reason, ...], *, full: bool
) -> StackSet | Clash:
    """Every other part, given the driver. A part left to us that cannot be had is left out with its reason."""
    why = [*reasons, *_assumptions(target)]
    torch = part(wheel_rules.choose_torch(target, driver.version, wish.torch), wish.torch, why)
    if isinstance(torch, Clash):
        return torch
    tensorflow = part(wheel_rules.choose_tensorflow(target, driver.version, wish.tensorflow), wish.tensorflow, why)
    if isinstance(tensorflow, Clash):
        return tensorflow
    why += wheel_rules.r19_same_environment(torch, tensorflow)
    why += wheel_rules.r16_unconfirmed(target.os) if torch or tensorflow else ()
    archive = archive_rules.archive_of(target.os, wish)
    found = libraries(target, wish, driver, torch, why, full=full, archive=archive)
    if isinstance(found, Clash):
        return found
    cuda, cudnn, nccl = found
    box = container_toolkit(wish.container_toolkit, why, archive)
    if isinstance(box, Clash):
        return box
    dcgm = part(option_rules.choose_dcgm(target, driver, wish.dcgm, archive), wish.dcgm, why)
    if isinstance(dcgm, Clash):
        return dcgm
    gdrcopy = option_rules.gdrcopy(wish, archive, why)
    fabric, fabric_reasons = driver_rules.r17_fabric(target)
    return StackSet(
        gpus=tuple(gpu.name for gpu in target.gpus),
        os=target.os.id,
        arch=target.arch,
        driver=driver,
        fabric_manager=driver.version if fabric.fabric_manager else None,
        subnet_manager=fabric.subnet_manager,
        imex=driver.version if fabric.imex else None,
        cuda=cuda,
        cudnn=cudnn,
        nccl=nccl,
        container_toolkit=box,
        torch=torch,
        tensorflow=tensorflow,
        source=msgspec.UNSET if archive is None else "debian",
        dcgm=dcgm or msgspec.UNSET,
        gdrcopy=gdrcopy or msgspec.UNSET,
        reasons=(*why, *fabric_reasons),
    )


def counted(gpus: Sequence[str]) -> str:
    """``2 x Tesla P100-PCIE``, in order of first appearance."""
    return " + ".join(f"{list(gpus).count(name)} x {name}" for name in dict.fromkeys(gpus))
