"""Compare a host with the plan of its stack, as ``gpucheck stack check`` does."""

import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from gpucheck.checks.software import stack
from gpucheck.checks.software._wheels import Imported
from gpucheck.host.live import READ_S
from gpucheck.model import Report
from gpucheck.model.facts import Source
from gpucheck.processes.capture import HostResources, capture
from gpucheck.run.step import evaluated
from gpucheck.run.verification import CHECK_S, Outcome, RunStep, verify

if TYPE_CHECKING:
    from gpucheck.stack.plan import Plan


IMPORT_S = 120.0
# The architecture list is asked below torch.cuda.get_arch_list(), which answers nothing where no GPU is usable.
SCRIPT = """
import json, os, torch
def reported(ask):
    try:
        return ask()
    except (AttributeError, RuntimeError):  # a CPU build lacks it
        return None
cudnn = reported(torch.backends.cudnn.version)
if cudnn is not None:
    step = 10000 if cudnn >= 90000 else 1000
    cudnn = f"{cudnn // step}.{cudnn % step // 100}.{cudnn % 100}"
nccl = reported(torch.cuda.nccl.version)
flags = reported(lambda: torch._C._cuda_getArchFlags()) or ""
words = ("libcudart", "libcudnn", "libnccl", "libcublas", "libcufft", "libnvrtc")
with open("/proc/self/maps") as maps:
    paths = {line.split(None, 5)[5].strip() for line in maps if line.count("/")}
print(json.dumps({
    "version": torch.__version__, "cuda": torch.version.cuda, "cudnn": cudnn,
    "nccl": ".".join(map(str, nccl)) if nccl else None,
    "arch_list": [flag for flag in flags.split() if flag.startswith("sm_")],
    "mapped": sorted(path for path in paths if os.path.basename(path).startswith(words)),
    "folder": os.path.dirname(os.path.dirname(torch.__file__)),
}))
"""


def compared(source: Source, plan: "Plan | None", where: str, *, import_torch: bool) -> Report:
    """Return the report of the check that compares a host with its plan. plan None: the plan on the host.

    where: the lock file, for findings. import_torch: also import torch in a child process.
    """
    imported = query_torch() if import_torch else None
    check = replace(stack.CHECK, evaluate=partial(stack.evaluate, imported=imported))
    if plan is not None:
        text = msgspec.json.encode(plan).decode()
        evaluate = partial(stack.evaluate, plan=text, where=where, imported=imported)
        check = replace(check, evaluate=evaluate, needs=stack.NEEDS, more=partial(stack.more, plan=text))

    def run(source: Source) -> Outcome:
        return Outcome(tuple(evaluated(check, source)), {})

    step = RunStep(check.name, check.tags, run, READ_S, CHECK_S)
    return verify(source, [step])


def query_torch(python: str = sys.executable, seconds: float = IMPORT_S) -> Imported:
    """Return what torch reports in a child process, or Imported.error if it cannot be imported."""
    try:
        child = capture([python, "-c", SCRIPT], seconds)
    except HostResources as reason:
        return Imported(error=f"import torch: {reason}")
    if child.status is None:
        return Imported(error=f"import torch: no response in {seconds:.0f} s")
    if child.status:
        last = (child.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {child.status}"])[-1]
        return Imported(error=f"import torch: {last}")
    try:
        return msgspec.json.decode(child.stdout.strip().splitlines()[-1], type=Imported)
    except (msgspec.DecodeError, IndexError) as error:
        return Imported(error=f"import torch: invalid response {child.stdout[-80:]!r}: {error}")
