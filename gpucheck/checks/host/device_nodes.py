"""Device nodes: do the device files exist through which programs reach the driver?

Source: /dev. CUDA needs nvidiactl, one nvidia<minor> for each GPU, and nvidia-uvm; without the last one NVML works and
CUDA fails to initialize, which is common in containers.
"""

import re
from collections.abc import Iterator

from gpucheck.checks._nvml import no_gpus, not_looked
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, Finding, NvmlFailure
from gpucheck.model.facts import Facts

NAME = "device-nodes"
GPU_NODE = re.compile(r"nvidia\d+")


def evaluate(facts: Facts) -> Iterator[Finding]:
    every = facts.folders["/dev"]
    names = [name for name in every or () if name.startswith("nvidia")]
    subject = Subject(check=NAME, evidence=(f"/dev: {' '.join(names) or 'no nvidia file'}",))
    if isinstance(facts.nvml, NvmlFailure):
        yield not_looked(NAME, facts.nvml)
        return
    if every is None:
        yield Subject(check=NAME).unknown("host.device-files-unknown")
        return
    gpus = len(facts.nvml.gpus)
    if not gpus:
        yield no_gpus(NAME)
        return
    nodes = [name for name in names if GPU_NODE.fullmatch(name)]
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if name not in names]
    if len(nodes) < gpus:
        missing.append(f"{gpus - len(nodes)} of {gpus} GPU files")
    denied = any(file.name == "nvidia-uvm" and file.error == "EPERM" for file in facts.device_files)
    if not missing and denied:
        yield subject.unknown("host.device-file-denied", "no access to /dev/nvidia-uvm")
        return
    if not missing:
        yield subject.passes(f"{len(nodes)} GPU files, nvidiactl, nvidia-uvm")
        return
    seen = f"missing in /dev: {', '.join(missing)}"
    if facts.system.container:
        yield subject.fails("host.device-files-not-passed", seen)
    elif missing == ["nvidia-uvm"]:
        yield subject.warns("host.device-file-not-created", seen)
    else:
        yield subject.fails("host.device-files-missing", seen)


CHECK = Check(
    NAME,
    frozenset({"software", "quick"}),
    evaluate=evaluate,
    needs=("nvml", "system", "device_files", "folder:/dev"),
)
