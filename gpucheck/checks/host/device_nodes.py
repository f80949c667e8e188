"""Device nodes: do the device files exist through which programs reach the driver?

Source: /dev. CUDA needs nvidiactl, one nvidia<minor> for each GPU, and nvidia-uvm; without the last one NVML works and
CUDA fails to initialize, which is common in containers.
"""

import re
from collections.abc import Iterator

import msgspec

from gpucheck.checks._nvml import no_gpus, not_looked
from gpucheck.checks._session import OUTSIDE
from gpucheck.model import Check, Finding, Host, NvmlFailure, NvmlReading
from gpucheck.model.finding.about import About

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
    about = About(check=NAME, evidence=(f"/dev: {' '.join(values.names or ()) or 'no nvidia file'}",))
    if isinstance(values.nvml, NvmlFailure):
        yield not_looked(NAME, values.nvml)
        return
    if values.names is None:
        yield About(check=NAME).unknown("device files unknown: /dev cannot be listed", "ls -l /dev/nvidia*")
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
        why = "A device cgroup denies /dev/nvidia-uvm, so CUDA cannot initialize in this session."
        yield about.unknown(why, f"permit it in the cgroup, or leave it: {OUTSIDE}", "no access to /dev/nvidia-uvm")
        return
    if not missing:
        yield about.passes(f"{len(nodes)} GPU files, nvidiactl, nvidia-uvm")
        return
    why = "CUDA cannot initialize without these device files, although NVML works."
    fix = (
        "start the container with --gpus all, or with the CDI device nvidia.com/gpu=all"
        if values.container
        else "nvidia-modprobe -c0 -u, and enable nvidia-persistenced, which creates them at boot"
    )
    seen = f"missing in /dev: {', '.join(missing)}"
    if missing == ["nvidia-uvm"] and not values.container:
        why = "The first CUDA program creates this device file, if it has the permission."
        yield about.warns(seen, None, why, fix, "device-node-missing")
    else:
        yield about.fails(seen, None, why, fix, "device-node-missing")


CHECK = Check(NAME, frozenset({"software", "quick"}), probe, evaluate)
