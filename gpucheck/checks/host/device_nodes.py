"""Device nodes: do the device files exist through which programs reach the driver?

Source: /dev. CUDA needs nvidiactl, one nvidia<minor> for each GPU, and nvidia-uvm; without the last one NVML works and
CUDA fails to initialize, which is common in containers.
"""

import re
from collections.abc import Iterator

import msgspec

from gpucheck.checks._nvml import no_gpus, not_looked
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, Finding, Host, NvmlFailure, NvmlReading

NAME = "device-nodes"
GPU_NODE = re.compile(r"nvidia\d+")


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """names: files of NVIDIA in /dev, None where it cannot be listed. nvml: for the number of GPUs.

    denied: a device cgroup denies nvidia-uvm.
    """

    names: tuple[str, ...] | None
    nvml: NvmlReading | NvmlFailure
    container: str | None
    denied: bool = False


def probe(host: Host) -> Values:
    names = host.list_names("/dev")
    return Values(
        names=None if names is None else tuple(name for name in names if name.startswith("nvidia")),
        nvml=host.nvml(),
        container=host.system().container,
        denied=any(file.name == "nvidia-uvm" and file.error == "EPERM" for file in host.device_files()),
    )


def evaluate(values: Values) -> Iterator[Finding]:
    subject = Subject(check=NAME, evidence=(f"/dev: {' '.join(values.names or ()) or 'no nvidia file'}",))
    if isinstance(values.nvml, NvmlFailure):
        yield not_looked(NAME, values.nvml)
        return
    if values.names is None:
        yield Subject(check=NAME).unknown("host.device-files-unknown")
        return
    gpus = len(values.nvml.gpus)
    if not gpus:
        yield no_gpus(NAME)
        return
    nodes = [name for name in values.names if GPU_NODE.fullmatch(name)]
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if name not in values.names]
    if len(nodes) < gpus:
        missing.append(f"{gpus - len(nodes)} of {gpus} GPU files")
    if not missing and values.denied:
        yield subject.unknown("host.device-file-denied", "no access to /dev/nvidia-uvm")
        return
    if not missing:
        yield subject.passes(f"{len(nodes)} GPU files, nvidiactl, nvidia-uvm")
        return
    seen = f"missing in /dev: {', '.join(missing)}"
    if values.container:
        yield subject.fails("host.device-files-not-passed", seen)
    elif missing == ["nvidia-uvm"]:
        yield subject.warns("host.device-file-not-created", seen)
    else:
        yield subject.fails("host.device-files-missing", seen)


CHECK = Check(NAME, frozenset({"software", "quick"}), probe, evaluate)
