"""Rules about the driver: the branches and the kernel module flavor that a host can use."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from gpucheck.knowledge import GpuModel, tables
from gpucheck.knowledge.packages import Folder, packages
from gpucheck.knowledge.tables import Branch, OperatingSystem, Toolkit
from gpucheck.stack.types import Clash, Fact, Reason, Target
from gpucheck.stack.versions import major, minor, parse, request

Flavour = Literal["open", "proprietary"]
LAST_KERNEL_FLOOR = "4.15"


def is_a(gpu: GpuModel) -> str:
    """Return a GPU as text: ``Tesla P100-PCIE is sm_60 (Pascal)``."""
    return f"{gpu.name} is sm_{gpu.compute_capability.replace('.', '')} ({gpu.architecture})"


def r1_driver_floor(cuda_major: int, driver: str, component: str, what: str) -> Clash | None:
    """R1: programs built with a CUDA major need at least the minimum driver of that major."""
    floor = tables.drivers().minor_compat_floor[str(cuda_major)]
    if parse(driver) >= parse(floor):
        return None
    one = Fact(f"{what} is built with CUDA {cuda_major}, which runs from driver {floor}", "cuda-compat, cuda-rn")
    other = Fact(f"the driver is {driver}", "the specification")
    because = f"driver {driver} is older than {floor}, the minimum of every CUDA {cuda_major} program"
    return Clash(component=component, rule="R1", between=(one, other), because=because)


def r2_full_function(toolkit: Toolkit, driver: str) -> Clash | None:
    """R2: full function, PTX JIT included, needs the minimum driver of exactly that toolkit; unknown means not met."""
    if toolkit.driver_full is not None and parse(driver) >= parse(toolkit.driver_full):
        return None
    wanted = f"driver {toolkit.driver_full}" if toolkit.driver_full else "a driver that is not known"
    one = Fact(f"CUDA {toolkit.version} needs {wanted} for full function, PTX JIT included", "cuda-rn")
    other = Fact(f"the driver is {driver}", "the specification")
    because = f"with driver {driver} CUDA {toolkit.version} would run by minor version compatibility only"
    return Clash(component="cuda", rule="R2", between=(one, other), because=because)


def r4_r9_branch_window(gpu: GpuModel, branch: str) -> Clash | None:
    """R9: a GPU works only from its first to its last driver branch. R4: CUDA sets no newest driver, the GPU does."""
    number = int(branch)
    if number < int(gpu.first_driver.branch):
        edge = f"the first branch with {gpu.name} is {gpu.first_driver.branch} ({gpu.first_driver.evidence})"
        source = "open-gkm"
    elif gpu.last_driver_branch is not None and number > int(gpu.last_driver_branch):
        edge = f"{is_a(gpu)} and branch {gpu.last_driver_branch} is its last"
        source = "arch-matrix"
    else:
        return None
    between = (Fact(edge, source), Fact(f"driver branch {branch} is requested or needed", "the specification"))
    return Clash(component="driver", rule="R9", between=between, because=f"branch {branch} does not drive {gpu.name}")


def r9_first_release(gpu: GpuModel, version: str) -> Clash | None:
    """R9: in its first branch, a GPU works only from the release that names it."""
    first = gpu.first_driver
    if first.release is None or major(version) != int(first.branch) or parse(version) >= parse(first.release):
        return None
    edge = f"the first release of branch {first.branch} with {gpu.name} is {first.release} ({first.evidence})"
    between = (Fact(edge, "open-gkm"), Fact(f"driver {version} is requested", "the specification"))
    return Clash(component="driver", rule="R9", between=between, because=f"driver {version} does not drive {gpu.name}")


def r9_architecture_ended(gpu: GpuModel) -> Clash | None:
    """R9: an architecture whose last branch has ended is not supported any more (Kepler)."""
    last = gpu.last_driver_branch
    if last is None:
        return None
    branch = next(b for b in tables.drivers().branches if b.branch == last)
    if branch.state != "eol":
        return None
    ended = ", ".join(f"{date} according to {who.replace('_', ' ')}" for who, date in branch.eol.items())
    one = Fact(f"{is_a(gpu)}: branch {last} is its last driver, CUDA {gpu.max_cuda} its last CUDA", "arch-matrix")
    other = Fact(f"branch {last} has ended ({ended})", "endoflife")
    because = f"no supported driver drives {gpu.name} any more"
    return Clash(component="driver", rule="R9", between=(one, other), because=because)


def r15_kernel(os: OperatingSystem, branch: Branch) -> Clash | None:
    """R15: a branch builds only on kernels from its minimum. If that is not known, the minimum of 555 applies."""
    newest = os.max_driver_branch
    if newest is None or int(branch.branch) <= int(newest):
        return None
    one = Fact(f"branch {branch.branch} needs kernel {branch.min_kernel or LAST_KERNEL_FLOOR} or newer", "open-gkm")
    other = Fact(f"{os.name} has kernel {os.kernel}, on which branch {newest} is the last that builds", "env-dumps")
    because = f"driver branch {branch.branch} does not build on {os.name}"
    return Clash(component="driver", rule="R15", between=(one, other), because=because)


def r15_newer_kernel(branch: str, kernels: Iterable[str]) -> Iterator[Reason]:
    """R15: that a branch builds on a kernel newer than the newest that it was seen to build on is not confirmed.

    A branch of which no report was read builds at least where the ones before it do.
    """
    before = [row for row in tables.drivers().branches if row.max_kernel and parse(row.branch) <= parse(branch)]
    newest = before[-1].max_kernel if before else None
    for kernel in sorted(set(kernels)) if newest else ():
        number = re.match(r"\d+\.\d+", kernel)
        if number and parse(number[0]) > parse(newest or ""):
            text = (
                f"kernel {kernel}: driver branch {branch} was not seen to build on a kernel newer than {newest}; if it "
                "does not build, boot an older kernel or state a newer driver"
            )
            yield Reason(component="driver", because=text, rule="R15", source="driver-kernel-reports", confirmed=False)


def r18_branches(prefer: str, wanted: str) -> tuple[Branch, ...]:
    """R18: branches are tried in the order of `prefer`; a branch that has ended is tried only if it is named.

    longest-supported: long-term first, then production; production: production first; newest: by number.
    """
    requested = request(wanted)
    fits = [b for b in tables.drivers().branches if b.last is not None and _branch_matches(b, wanted)]
    if not fits and len(requested.prefix) > 1:
        fits = _after_the_newest(requested.prefix[0])
    if not requested.prefix:
        fits = [b for b in fits if b.state in ("supported", "disputed")]
    order = {"longest-supported": ("LTS", "PB"), "production": ("PB", "LTS"), "newest": ()}[prefer]

    def rank(branch: Branch) -> tuple[int, int]:
        known = branch.type in order and branch.state == "supported"
        place = order.index(branch.type) if known and branch.type else len(order) + (branch.state != "supported")
        return place, -int(branch.branch)

    return tuple(sorted(fits, key=rank))


def _after_the_newest(number: int) -> list[Branch]:
    """A branch newer than all known ones, like the newest of them; [] for another number."""
    newest = max(tables.drivers().branches, key=lambda branch: int(branch.branch))
    if number <= int(newest.branch):
        return []
    note = f"branch {number} is taken to be like {newest.branch}"
    like = msgspec.structs.replace(newest, branch=str(number), note=note, type=None, state="unknown")
    return [msgspec.structs.replace(like, eol={}, first=None, native_cuda=None, max_kernel=None)]


def _branch_matches(branch: Branch, wanted: str) -> bool:
    requested = request(wanted)
    if requested.prefix:
        return requested.prefix[0] == int(branch.branch)
    return requested.matches(branch.last or branch.branch)


def r18_version(branch: Branch, wanted: str) -> tuple[str, Reason]:
    """R18: the driver is the newest known point release of its branch, or exactly the requested one."""
    requested = request(wanted)
    newest = branch.last or ""
    if len(requested.prefix) < 2 or requested.version == newest:
        kind = {"LTS": "long-term", "PB": "production", "NFB": "new feature"}.get(branch.type or "", "unconfirmed type")
        dates = "; ".join(f"{date} ({who.replace('_', ' ')})" for who, date in branch.eol.items())
        ends = f"ends {dates}" if dates else "without a date of its end"
        text = f"branch {branch.branch}: {kind}, {ends}; {newest} is its newest release known"
        sure = branch.state == "supported" and branch.type is not None
        source = "nv-supported-drivers-620, endoflife"
        return newest, Reason(component="driver", because=text, rule="R18", source=source, confirmed=sure)
    version = requested.version
    known = branch.note if branch.state == "unknown" else f"newest known of branch {branch.branch}: {newest}"
    text = f"{version} as requested; it is not in the tables ({known})"
    return version, Reason(component="driver", because=text, rule="R18", source="the specification", confirmed=False)


def end_of_life(os: OperatingSystem, today: str) -> Clash | None:
    """Return the clash of an operating system past its last free support date. today: ISO date of the tables."""
    end = os.eol_extended or os.eol
    if end is None or end >= today:
        return None
    one = Fact(f"{os.name} has been out of support since {end}", "endoflife")
    other = Fact("NVIDIA's current driver guides do not list it", "driver-install-guide")
    because = f"{os.name} is past its end of life, so no supported release runs on it"
    return Clash(component="os", rule="R15", between=(one, other), because=because)


def r20_architecture(target: Target) -> Clash | None:
    """R20: Grace boards are aarch64 hosts; hosts with other GPUs can be of either architecture."""
    grace: Sequence[GpuModel] = [gpu for gpu in target.models if gpu.grace]
    if not grace or target.arch == "sbsa":
        return None
    between = (
        Fact(f"{grace[0].name} is attached to a Grace CPU, which is aarch64", "spec-lists"),
        Fact(f"the host is {target.arch}", "the specification"),
    )
    return Clash(component="arch", rule="R20", between=between, because=f"no {target.arch} host has a {grace[0].name}")


def r13_forward_compatibility(target: Target) -> str:
    """R13: with cuda-compat packages some GPUs need no newer driver; a dropped architecture stays unsupported."""
    if all(gpu.forward_compatibility for gpu in target.models):
        return "NVIDIA's cuda-compat packages may lower this minimum too: read their matrix first"
    barred = next(gpu for gpu in target.models if not gpu.forward_compatibility)
    return f"cuda-compat packages do not help: they do not support {barred.name}"


RULE, SOURCE = "R24", "cuda-repo"


def folder_of(target: Target) -> Folder:
    """Return the oldest releases in the directory of this system and architecture."""
    return packages().folders.get(target.os.repository or "", {}).get(target.arch, Folder())


def r24_branch(target: Target, branch: Branch) -> Clash | None:
    """R24: NVIDIA's directory for a system has no driver branch older than its first one."""
    first = folder_of(target).first_branch
    if first is None or int(branch.branch) >= int(first):
        return None
    because = f"NVIDIA has no driver {branch.branch} for {target.os.name} on {target.arch}"
    return _clash("driver", target, f"branch {first}", f"driver branch {branch.branch} is requested or needed", because)


def r24_cuda(target: Target, toolkit: Toolkit) -> Clash | None:
    """R24: it has no CUDA toolkit older than its first one."""
    first = folder_of(target).first_cuda
    if first is None or parse(minor(toolkit.version)) >= parse(first):
        return None
    because = f"NVIDIA has no CUDA {minor(toolkit.version)} for {target.os.name} on {target.arch}"
    return _clash("cuda", target, f"CUDA {first}", f"CUDA {toolkit.version} is requested or needed", because)


def _clash(component: str, target: Target, first: str, needed: str, because: str) -> Clash:
    fact = Fact(f"the directory {target.os.repository}/{target.arch} begins with {first}", SOURCE)
    return Clash(component=component, rule=RULE, between=(fact, Fact(needed, "the specification")), because=because)
