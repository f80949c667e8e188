"""P2P status: does the driver let every pair of GPUs reach each other, and where not, is that by design?

Source: nvmlDeviceGetP2PStatus for read and write over whatever path there is, and for NVLink. OK does not prove that
data arrives right; that is measured. GeForce cards of Ada and newer have no peer-to-peer by NVIDIA's decision, unequal
models may have none, a virtual machine hides it, MIG has none.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations

import msgspec

from gpucheck.checks._nvml import no_gpus, not_looked
from gpucheck.knowledge import find_gpu, gpu_by_pci_id
from gpucheck.model import Check, Finding, Gpu, Host, NvmlFailure, NvmlReading
from gpucheck.model.about import About
from gpucheck.topology import joint

NAME = "p2p-status"
MEANING = {
    "CNS": "the chipset does not support it",
    "GNS": "the GPU does not support it",
    "TNS": "the path between the two I/O hubs does not support it",
    "DR": "it is disabled by a registry key of the driver",
    "NS": "it is not supported",
}
SHOWN = 12


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs with their P2P status, and the kind of virtual machine where there is one."""

    nvml: NvmlReading | NvmlFailure
    virtual: str | None


def probe(host: Host) -> Values:
    """Ask NVML."""
    return Values(nvml=host.nvml(), virtual=host.system().virtual)


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding for each kind of answer, with the pairs that got it."""
    nvml = values.nvml
    if isinstance(nvml, NvmlFailure):
        yield not_looked(NAME, nvml)
        return
    if not nvml.gpus:
        yield no_gpus(NAME)
        return
    if len(nvml.gpus) == 1:
        yield About(check=NAME).skips("a single GPU has no pair to judge", "1 GPU")
        return
    groups = defaultdict(list)
    for a, b in combinations(nvml.gpus, 2):
        groups[_status(nvml, a, b), _why_not(a, b, values.virtual)].append((a, b))
    for (status, by_design), pairs in groups.items():
        yield _judge(status, by_design, pairs)
    yield from _links_without_p2p(nvml)


def _status(nvml: NvmlReading, a: Gpu, b: Gpu) -> str | None:
    """The worst of read and write, both ways; OK only when all say so, None when nothing was told."""
    told = [
        nvml.p2p[kind][x.index][y.index] for kind in ("read", "write") if kind in nvml.p2p for x, y in ((a, b), (b, a))
    ]
    known = [status for status in told if status is not None]
    return next((status for status in known if status != "OK"), "OK") if known else None


def _why_not(a: Gpu, b: Gpu, virtual: str | None) -> str | None:
    """The cause by which a pair may lack peer-to-peer without anything being broken."""
    if a.health.mig or b.health.mig:
        return "mig-enabled"
    if virtual is not None:
        return "vm-no-p2p"
    if a.device_id != b.device_id:
        return "p2p-unsupported-pair"
    model = gpu_by_pci_id(a.device_id) or find_gpu(a.name)
    return "geforce-p2p-disabled" if model is not None and model.cls == "geforce" and not joint(a, b).links else None


def _judge(status: str | None, by_design: str | None, pairs: list[tuple[Gpu, Gpu]]) -> Finding:
    names = [f"{a.pci_bus_id}-{b.pci_bus_id}" for a, b in pairs]
    more = [f"and {len(names) - SHOWN} more pairs"] if len(names) > SHOWN else []
    about = About(
        check=NAME,
        subject=f"pair:{names[0]}" if len(names) == 1 else "host",
        evidence=tuple(f"nvmlDeviceGetP2PStatus {name}: {status}" for name in names[:SHOWN]) + tuple(more),
    )
    seen = f"{status} for {len(pairs)} pair{'s' * (len(pairs) > 1)}"
    if status == "OK":
        return about.passes(seen, "OK")
    if status is None:
        return about.unknown("NVML did not tell the P2P status of these pairs", "nvidia-smi topo -p2p r", wanted="OK")
    why = f"the driver offers no peer-to-peer here: {MEANING.get(status, status)}"
    if by_design is not None:
        return about.skips(
            f"{why}; expected for such a pair, copies go through host memory", seen, wanted="OK", cause=by_design
        )
    fix = "nvidia-smi topo -p2p r; check BIOS, IOMMU and the driver's module options (NVreg_RegistryDwords)"
    if status in ("CNS", "TNS"):
        return about.warns(seen, "OK", why, fix, "p2p-unsupported-pair", "likely")
    return about.fails(seen, "OK", why, fix, "p2p-unsupported-pair", "likely")


def _links_without_p2p(nvml: NvmlReading) -> Iterator[Finding]:
    """Ports that are up prove no path: on NVSwitch boards the fabric must have been set up too.

    While it is being set up there is none, which the fabric check tells.
    """
    status = nvml.p2p.get("nvlink")
    if status is None or any(gpu.fabric is not None and gpu.fabric.state != "completed" for gpu in nvml.gpus):
        return
    dead = [
        (a, b)
        for a, b in combinations(nvml.gpus, 2)
        if joint(a, b).links and status[a.index][b.index] not in ("OK", None)
    ]
    if dead and not any(a.health.mig or b.health.mig for a, b in dead):
        names = [f"{a.pci_bus_id}-{b.pci_bus_id}" for a, b in dead]
        about = About(check=NAME, evidence=tuple(f"nvmlDeviceGetP2PStatus NVLink {n}: not OK" for n in names[:SHOWN]))
        switched = any(link.remote_kind == "switch" for a, _ in dead for link in a.nvlinks)
        cause = "fabric-manager-down" if switched else "nvlink-down"
        why = "the links are up, and the driver does not use them" + (
            ": the fabric is not set up for these GPUs" if switched else ""
        )
        fix = "gpucheck verify --only fabric; restart fabric manager" if switched else "reseat the bridge, then reboot"
        yield about.fails(f"{len(dead)} pairs without NVLink P2P", "OK", why, fix, cause, "likely")


CHECK = Check(NAME, frozenset({"hardware", "quick"}), probe, evaluate)
