"""P2P status: does the driver let every pair of GPUs reach each other, and where not, is that by design?

Source: nvmlDeviceGetP2PStatus for read and write over whatever path there is, and for NVLink. OK does not prove that
data arrives right; that is measured. GeForce cards of Ada and newer have no peer-to-peer by NVIDIA's decision, unequal
models may have none, a virtual machine hides it, MIG has none.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

from gpucheck.checks._nvml import LOST, Hardware, evidence, gaps_of, query_hardware, reading_with_gpus, reason
from gpucheck.knowledge import find_gpu, gpu_by_pci_id
from gpucheck.model import Check, Finding, Gpu, NvmlGap, NvmlReading
from gpucheck.model.finding.about import About
from gpucheck.topology import NvLinks

NAME = "p2p-status"
CALL = "nvmlDeviceGetP2PStatus"
MEANING = {
    "CNS": "the chipset does not support it",
    "GNS": "the GPU does not support it",
    "TNS": "the path between the two I/O hubs does not support it",
    "DR": "it is disabled by a registry key of the driver",
    "NS": "it is not supported",
}
SHOWN = 12
Place = tuple[int, int]


def evaluate(values: Hardware) -> Iterator[Finding]:
    """One finding for each kind of answer, with the pairs that got it."""
    nvml = reading_with_gpus(NAME, values.nvml)
    if isinstance(nvml, Finding):
        yield nvml
        return
    if len(nvml.gpus) == 1:
        yield About(check=NAME).skips("not applicable: a single GPU has no pair", "1 GPU")
        return
    nvlinks = NvLinks(nvml.gpus, values.pci)
    groups: dict[tuple[str | None, str | None], list[Place]] = defaultdict(list)
    divided: list[Place] = []
    for pair in combinations(range(len(nvml.gpus)), 2):
        status = p2p_status(nvml, pair)
        linked = bool(nvlinks.between(*pair).links)
        if status not in ("OK", None) and _mig_refused(nvml, pair):
            divided.append(pair)
            continue
        groups[status, _why_not(nvml, pair, values.virtual, linked=linked)].append(pair)
    unread = [pair for (status, _), pairs in groups.items() if status is None for pair in pairs]
    for (status, by_design), pairs in groups.items():
        if status is not None:
            yield _evaluate(nvml, status, by_design, pairs)
    if divided:
        why = "reason of the missing peer-to-peer access unknown: NVML did not return the MIG mode of a GPU"
        yield _about(nvml, divided, "not OK").unknown(why, "gpucheck verify --only mig", because_of="mig")
    yield from _unread(nvml, unread)
    yield from _links_without_p2p(nvml, nvlinks)


def p2p_status(nvml: NvmlReading, pair: Place, kinds: Sequence[str] = ("read", "write")) -> str | None:
    """Return the first status that is not OK, both ways, by place in NVML's order; OK only when all of them are.

    None where a direction was not reported: that one direction works proves nothing of the other.
    """
    reported = [_at(nvml, kind, *at) for kind in kinds if kind in nvml.p2p for at in (pair, pair[::-1])]
    bad = next((status for status in reported if status not in ("OK", None)), None)
    return bad or (None if not reported or None in reported else "OK")


def _at(nvml: NvmlReading, kind: str, i: int, j: int) -> str | None:
    matrix = nvml.p2p[kind]
    return matrix[i][j] if i < len(matrix) and j < len(matrix[i]) else None


def _why_not(nvml: NvmlReading, pair: Place, virtual: str | None, *, linked: bool) -> str | None:
    """Return the cause by which a pair may lack peer-to-peer without anything being broken."""
    a, b = (nvml.gpus[place] for place in pair)
    if _divided(a) or _divided(b):
        return "mig-enabled"
    if virtual is not None:
        return "vm-no-p2p"
    if a.device_id != b.device_id:
        return "p2p-unsupported-pair"
    model = gpu_by_pci_id(a.device_id) or find_gpu(a.name)
    return "geforce-p2p-disabled" if model is not None and model.cls == "geforce" and not linked else None


def _divided(gpu: Gpu) -> bool:
    """Whether MIG is on; a GPU with instances has it, also where NVML offers no mode."""
    return bool(gpu.health.mig or gpu.mig_uuids)


def _mig_refused(nvml: NvmlReading, pair: Place) -> bool:
    """Whether a GPU may be divided, which would explain that it has no peers."""
    gpus = [nvml.gpus[place] for place in pair if not _divided(nvml.gpus[place])]
    refused = (gap for gpu in gpus if gpu.health.mig is None for gap in gaps_of(nvml, gpu, "nvmlDeviceGetMigMode"))
    return any(not gap.absent for gap in refused)


def _evaluate(nvml: NvmlReading, status: str, by_design: str | None, pairs: list[Place]) -> Finding:
    about = _about(nvml, pairs, status)
    seen = f"{status} for {len(pairs)} pair{'s' * (len(pairs) > 1)}"
    if status == "OK":
        return about.passes(seen)
    why = f"the driver offers no peer-to-peer here: {MEANING.get(status, status)}"
    if by_design is not None:
        return about.skips(
            f"not applicable: {why}; expected for such a pair, copies go through host memory",
            seen,
            wanted="OK",
            cause=by_design,
        )
    fix = "nvidia-smi topo -p2p r; check BIOS, IOMMU and the driver's module options (NVreg_RegistryDwords)"
    if status in ("CNS", "TNS"):
        return about.warns(seen, "OK", why, fix, "p2p-unsupported-pair")
    return about.fails(seen, "OK", why, fix, "p2p-unsupported-pair")


def _unread(nvml: NvmlReading, pairs: list[Place]) -> Iterator[Finding]:
    """Yield one finding for each reason why NVML did not report a pair; a lost GPU is the inventory's."""
    groups: dict[str, list[tuple[Place, NvmlGap | None]]] = defaultdict(list)
    for pair in pairs:
        gap = _gap(nvml, *(nvml.gpus[place] for place in pair))
        groups[reason(gap) if gap else f"NVML did not respond to {CALL}"].append((pair, gap))
    for why, members in groups.items():
        gaps = [gap for _, gap in members if gap]
        about = _about(nvml, [pair for pair, _ in members], "not reported", tuple(map(evidence, gaps[:1])))
        lost = any(gap.code in LOST for gap in gaps)
        of = f"of {len(members)} pair{'s' * (len(members) > 1)} "
        if gaps and all(gap.absent for gap in gaps):
            yield about.skips(f"not run: P2P status {of}not reported: {why}")
            continue
        fix = "gpucheck verify --only inventory" if lost else "nvidia-smi topo -p2p r; read dmesg for NVRM lines"
        yield about.unknown(f"P2P status {of}unknown: {why}", fix, because_of="inventory" if lost else None)


def _gap(nvml: NvmlReading, a: Gpu, b: Gpu) -> NvmlGap | None:
    ids = (a.pci_bus_id, b.pci_bus_id)
    names = [f"pair:{one}-{other}" for one, other in (ids, ids[::-1])]
    gaps = [gap for gap in nvml.gaps if gap.call == CALL and gap.subject in names]
    return next((gap for gap in gaps if gap.code in LOST), gaps[0] if gaps else None)


def _links_without_p2p(nvml: NvmlReading, nvlinks: NvLinks) -> Iterator[Finding]:
    """Ports that are up prove no path: on NVSwitch boards the fabric must have been set up too.

    While the fabric is being set up there is no access, which the fabric check reports.
    """
    if any(gpu.fabric is not None and gpu.fabric.state != "completed" for gpu in nvml.gpus):
        return
    dead = [
        pair
        for pair in combinations(range(len(nvml.gpus)), 2)
        if nvlinks.between(*pair).links and p2p_status(nvml, pair, ("nvlink",)) not in ("OK", None)
    ]
    if any(_mig_refused(nvml, pair) for pair in dead):
        return
    if dead and not any(_divided(nvml.gpus[place]) for pair in dead for place in pair):
        switched = any(nvlinks.switches(place) for pair in dead for place in pair)
        cause = "fabric-manager-down" if switched else "nvlink-down"
        why = "the NVLinks are active, but the driver does not use them" + (
            ": the fabric is not set up for these GPUs" if switched else ""
        )
        fix = "gpucheck verify --only fabric" if switched else "reseat the bridge, then reboot"
        about = _about(nvml, dead, "NVLink not OK", subject="host")
        plural = "s" * (len(dead) > 1)
        yield about.fails(f"{len(dead)} pair{plural} without NVLink P2P", "OK", why, fix, cause, "likely")


def _about(
    nvml: NvmlReading, pairs: list[Place], status: str, lines: tuple[str, ...] = (), *, subject: str | None = None
) -> About:
    names = ["-".join(nvml.gpus[place].pci_bus_id for place in pair) for pair in pairs]
    more = (f"and {len(names) - SHOWN} more pairs",) if len(names) > SHOWN else ()
    return About(
        check=NAME,
        subject=subject or (f"pair:{names[0]}" if len(names) == 1 else "host"),
        evidence=(*lines, *(f"{CALL} {name}: {status}" for name in names[:SHOWN]), *more),
    )


CHECK = Check(NAME, frozenset({"hardware", "quick"}), query_hardware, evaluate)
