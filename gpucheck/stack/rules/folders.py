"""Rules about NVIDIA's package folders: one per system and architecture, and none holds what was there before it."""

from gpucheck.knowledge.packages import Folder, packages
from gpucheck.knowledge.tables import Branch, Toolkit
from gpucheck.stack.types import Clash, Fact, Target
from gpucheck.stack.versions import minor, parse

RULE, SOURCE = "R24", "cuda-repo"


def folder_of(target: Target) -> Folder:
    """What the folder of this system and architecture begins with."""
    return packages().folders.get(target.os.repository or "", {}).get(target.arch, Folder())


def r24_branch(target: Target, branch: Branch) -> Clash | None:
    """R24: NVIDIA's folder for a system holds no driver branch older than the one it was opened with."""
    first = folder_of(target).first_branch
    if first is None or int(branch.branch) >= int(first):
        return None
    because = f"NVIDIA has no driver {branch.branch} for {target.os.name} on {target.arch}"
    return _clash("driver", target, f"branch {first}", f"driver branch {branch.branch} is asked for or needed", because)


def r24_cuda(target: Target, toolkit: Toolkit) -> Clash | None:
    """R24: the same for CUDA toolkits."""
    first = folder_of(target).first_cuda
    if first is None or parse(minor(toolkit.version)) >= parse(first):
        return None
    because = f"NVIDIA has no CUDA {minor(toolkit.version)} for {target.os.name} on {target.arch}"
    return _clash("cuda", target, f"CUDA {first}", f"CUDA {toolkit.version} is asked for or needed", because)


def _clash(component: str, target: Target, first: str, needed: str, because: str) -> Clash:
    fact = Fact(f"the folder {target.os.repository}/{target.arch} begins with {first}", SOURCE)
    return Clash(component=component, rule=RULE, between=(fact, Fact(needed, "the specification")), because=because)
