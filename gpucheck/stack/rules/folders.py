"""Rules about NVIDIA's repository directories: one per system and architecture, without releases older than it."""

from gpucheck.knowledge.packages import Folder, packages
from gpucheck.knowledge.tables import Branch, Toolkit
from gpucheck.stack.types import Clash, Fact, Target
from gpucheck.stack.versions import minor, parse

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
