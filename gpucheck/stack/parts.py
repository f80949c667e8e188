"""Given a driver: the parts that do not depend on each other, and what becomes of one that cannot be had."""

from typing import TypeVar

from gpucheck.knowledge.archives import Archive
from gpucheck.knowledge.packages import packages
from gpucheck.knowledge.recorded import TOOLKIT, recorded_versions
from gpucheck.stack.rules import archive as archive_rules
from gpucheck.stack.rules import libraries as library_rules
from gpucheck.stack.rules import wheels as wheel_rules
from gpucheck.stack.spec import Wish
from gpucheck.stack.types import Clash, DriverChoice, Fact, Reason, Target, TorchChoice
from gpucheck.stack.versions import major, request

T = TypeVar("T")
Chosen = tuple[T, tuple[Reason, ...]]


def part(found: Chosen[T] | Clash, wanted: str, why: list[Reason]) -> T | Clash | None:
    """A chosen part with its reasons noted; None when it is unwanted, or was left to us and cannot be had."""
    asked = request(wanted)
    if asked.none:
        return None
    if isinstance(found, Clash):
        if asked.explicit:
            return found
        source = ", ".join(dict.fromkeys(fact.source for fact in found.between))
        why.append(
            Reason(component=found.component, because=f"left out: {found.because}", rule=found.rule, source=source)
        )
        return None
    why += found[1]
    return found[0]


def libraries(
    target: Target,
    wish: Wish,
    driver: DriverChoice,
    torch: TorchChoice | None,
    why: list[Reason],
    *,
    full: bool,
    archive: Archive | None = None,
) -> tuple[str | None, str | None, str | None] | Clash:
    """CUDA, cuDNN and NCCL of the host itself. archive: where they come from, None = NVIDIA's repositories."""
    if request(wish.cuda).none:
        if request(wish.cudnn).explicit or request(wish.nccl).explicit:
            return Clash(
                component="cuda",
                rule="R7",
                between=(
                    Fact("cuda: none", "the wish"),
                    Fact("cudnn or nccl is asked for, and each is built for one CUDA major", "the wish"),
                ),
                because="without a CUDA toolkit there is no CUDA major to choose cuDNN and NCCL for",
            )
        return None, None, None
    wanted = wish.cuda if archive is None else archive_rules.r22_cuda(archive, wish.cuda)
    if isinstance(wanted, Clash):
        return wanted
    found = library_rules.choose_cuda(target, driver.version, wanted, full=full)
    if isinstance(found, Clash):
        # What the folder lacks is no reason to do without the driver as well; only after everything else was tried.
        left_out = found.rule == "R24" and not full and not _any_stated(wish)
        return (None, None, None) if left_out and part(found, wish.cuda, why) is None else found
    toolkit, reasons = found
    why += reasons
    # What the newest official build for these GPUs brings along is the yardstick, also when torch itself is not wanted
    # or is built for another CUDA major: an older torch must not bring newer libraries.
    cuda_major = major(toolkit.version)
    same = torch is not None and torch.cuda is not None and major(torch.cuda) == cuda_major
    yardstick = torch if same else _yardstick(target, driver)
    absent = archive_rules.r22_absent(archive, "cudnn", wish.cudnn)
    cudnn = part(absent or library_rules.choose_cudnn(target, cuda_major, wish.cudnn, yardstick), wish.cudnn, why)
    if isinstance(cudnn, Clash):
        return cudnn
    absent = archive_rules.r22_absent(archive, "nccl", wish.nccl)
    nccl = part(absent or library_rules.choose_nccl(target, toolkit.version, wish.nccl, yardstick), wish.nccl, why)
    if isinstance(nccl, Clash):
        return nccl
    return toolkit.version, cudnn, nccl


def _any_stated(wish: Wish) -> bool:
    return any(request(wanted).explicit for wanted in (wish.cuda, wish.cudnn, wish.nccl))


def _yardstick(target: Target, driver: DriverChoice) -> TorchChoice | None:
    found = wheel_rules.choose_torch(target, driver.version, "auto")
    return None if isinstance(found, Clash) else found[0]


def container_toolkit(wanted: str, why: list[Reason], archive: Archive | None = None) -> str | Clash | None:
    """The container toolkit's version; all four packages are at it.

    archive: where the rest comes from. What that lacks is taken from NVIDIA's repository only when asked for.
    """
    asked = request(wanted)
    if asked.none:
        return None
    absent = archive_rules.r22_absent(archive, "container_toolkit", wanted) if asked.auto else None
    if absent:
        return part(absent, wanted, why)
    known = packages().container_toolkit.versions
    for version in reversed(known):
        if asked.matches(version):
            text = "the version whose four packages the installation guide names"
            why.append(Reason(component="container_toolkit", because=text, source="container-toolkit-guide"))
            return version
    # What auto never takes: the guide does not name it, but somebody installed it.
    for version in recorded_versions(TOOLKIT, packages().container_toolkit.packages[0]):
        if asked.version == version:
            text = f"{version} as asked for: records show it in its repository, the tables name {', '.join(known)}"
            why.append(Reason(component="container_toolkit", because=text, source="cuda-repo"))
            return version
    return Clash(
        component="container_toolkit",
        rule="R18",
        between=(
            Fact(f"container toolkit {wanted} is asked for", "the wish"),
            Fact(f"the tables hold {', '.join(known)}", "container-toolkit-guide"),
        ),
        because=f"no container toolkit {wanted} is known",
        unknown=True,
    )
