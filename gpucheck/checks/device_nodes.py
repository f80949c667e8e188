"""Device nodes: are the files there through which programs reach the driver?

Source: /dev. CUDA needs nvidiactl, one nvidia<minor> for each GPU, and nvidia-uvm; without the last one NVML works and
CUDA fails to initialise, which is common in containers.
"""

import re
from collections.abc import Iterator

import msgspec

from gpucheck.model import Check, Finding, Host, NvmlReading
from gpucheck.model.about import About

NAME = "device-nodes"
GPU_NODE = re.compile(r"nvidia\d+")


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """names: what /dev holds of NVIDIA, None where it cannot be listed. gpus: as NVML counts."""

    names: tuple[str, ...] | None
    gpus: int | None
    container: str | None


def probe(host: Host) -> Values:
    """List /dev and ask NVML."""
    names, nvml = host.list_names("/dev"), host.nvml()
    return Values(
        names=None if names is None else tuple(name for name in names if name.startswith("nvidia")),
        gpus=len(nvml.gpus) if isinstance(nvml, NvmlReading) else None,
        container=host.system().container,
    )


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding for the host."""
    about = About(check=NAME, evidence=(f"/dev: {' '.join(values.names or ()) or 'no nvidia file'}",))
    if values.gpus is None:
        yield about.skips("without a working driver there are none to expect (see the driver check)")
        return
    if values.names is None:
        yield about.unknown("/dev cannot be listed", "ls -l /dev/nvidia*")
        return
    nodes = [name for name in values.names if GPU_NODE.fullmatch(name)]
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if name not in values.names]
    if len(nodes) < values.gpus:
        missing.append(f"{values.gpus - len(nodes)} of {values.gpus} GPU files")
    if not missing:
        yield about.passes(f"{len(nodes)} GPU files, nvidiactl, nvidia-uvm")
        return
    why = "CUDA cannot initialise without these files, although NVML answers"
    fix = (
        "start the container with --gpus all, or with the CDI device nvidia.com/gpu=all"
        if values.container
        else "nvidia-modprobe -c0 -u, and enable nvidia-persistenced, which makes them at boot"
    )
    seen, wanted = f"missing: {', '.join(missing)}", "nvidiactl, nvidia-uvm, one file a GPU"
    if missing == ["nvidia-uvm"] and not values.container:
        yield about.warns(seen, wanted, "the first CUDA program makes this file, if it may", fix, "device-node-missing")
    else:
        yield about.fails(seen, wanted, why, fix, "device-node-missing")


CHECK = Check(NAME, frozenset({"software", "quick"}), probe, evaluate)
