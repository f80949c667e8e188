"""P2P status: does the driver let every pair of GPUs reach each other, and where not, is that by design?

Source: nvmlDeviceGetP2PStatus for read and write over whatever path there is, and for NVLink. OK does not prove that
data arrives right; that is measured. GeForce cards of Ada and newer have no peer-to-peer by NVIDIA's decision, unequal
models may have none, a virtual machine hides it, MIG has none.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

from gpucheck.checks._nvml import LOST, evidence, gaps_of, with_gpus
from gpucheck.knowledge import find_gpu, gpu_by_pci_id
from gpucheck.knowledge.codes import Subject
from gpucheck.model import DEFECT, Check, Finding, Gpu, NvmlGap, NvmlReading, Verdict
from gpucheck.model.facts import Facts
from gpucheck.topology import NvLinks

NAME = "p2p-status"
CALL = "nvmlDeviceGetP2PStatus"
CODES = {
    "CNS": "p2p.chipset-unsupported",
    "GNS": "p2p.gpu-unsupported",
    "TNS": "p2p.path-unsupported",
    "DR": "p2p.disabled-by-driver",
    "NS": "p2p.not-supported",
}
SHOWN = 12
Place = tuple[int, int]


@with_gpus(NAME)
def evaluate(facts: Facts, nvml: NvmlReading) -> Iterator[Finding]:
    """One finding for each kind of answer, with the pairs that got it."""
    if len(nvml.gpus) == 1:
        yield Subject(check=NAME).skips("p2p.single-gpu", "1 GPU")
        return
    nvlinks = NvLinks(nvml.gpus, facts.pci)
    groups: dict[tuple[str | None, str | None], list[Place]] = defaultdict(list)
    divided: list[Place] = []
    for pair in combinations(range(len(nvml.gpus)), 2):
        status = p2p_status(nvml, pair)
        linked = bool(nvlinks.between(*pair).links)
        if status not in ("OK", None) and _mig_refused(nvml, pair):
            divided.append(pair)
            continue
        groups[status, _why_not(nvml, pair, facts.system.virtual, linked=linked)].append(pair)
    unread = [pair for (status, _), pairs in groups.items() if status is None for pair in pairs]
    for (status, by_design), pairs in groups.items():
        if status is not None:
            yield _evaluate(nvml, status, by_design, pairs)
    if divided:
        yield _subject(nvml, divided, "not OK").unknown("p2p.mig-mode-unknown", because_of="mig")
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
    """Return the code of what may deny a pair peer-to-peer without anything being broken."""
    a, b = (nvml.gpus[place] for place in pair)
    if _divided(a) or _divided(b):
        return "p2p.none-with-mig"
    if virtual is not None:
        return "p2p.none-in-vm"
    if a.device_id != b.device_id:
        return "p2p.none-between-models"
    model = gpu_by_pci_id(a.device_id) or find_gpu(a.name)
    return "p2p.none-on-geforce" if model is not None and model.cls == "geforce" and not linked else None


def _divided(gpu: Gpu) -> bool:
    """Whether MIG is on; a GPU with instances has it, also where NVML offers no mode."""
    return bool(gpu.health.mig or gpu.mig_uuids)


def _mig_refused(nvml: NvmlReading, pair: Place) -> bool:
    """Whether a GPU may be divided, which would explain that it has no peers."""
    gpus = [nvml.gpus[place] for place in pair if not _divided(nvml.gpus[place])]
    refused = (gap for gpu in gpus if gpu.health.mig is None for gap in gaps_of(nvml, gpu, "nvmlDeviceGetMigMode"))
    return any(not gap.absent for gap in refused)


def _evaluate(nvml: NvmlReading, status: str, by_design: str | None, pairs: list[Place]) -> Finding:
    subject = _subject(nvml, pairs, status)
    seen = f"{status} for {len(pairs)} pair{'s' * (len(pairs) > 1)}"
    if status == "OK":
        return subject.passes(seen)
    if by_design is not None:
        return subject.skips(by_design, seen, "OK", status=status)
    verdict = Verdict.WARN if status in ("CNS", "TNS") else Verdict.FAIL
    return subject.finding(verdict, CODES.get(status, "p2p.status-not-ok"), seen, "OK", status=status)


def _unread(nvml: NvmlReading, pairs: list[Place]) -> Iterator[Finding]:
    """Yield one finding for each reason why NVML did not report a pair; a lost GPU is the inventory's."""
    groups: dict[tuple[int, str] | None, list[tuple[Place, NvmlGap | None]]] = defaultdict(list)
    for pair in pairs:
        gap = _gap(nvml, *(nvml.gpus[place] for place in pair))
        groups[(gap.code, gap.name) if gap else None].append((pair, gap))
    for members in groups.values():
        gap, count = members[0][1], len(members)
        lines = (evidence(gap),) if gap else ()
        subject = _subject(nvml, [pair for pair, _ in members], "not reported", lines)
        if gap is None:
            yield subject.unknown("p2p.status-not-reported", pairs=count)
            continue
        error = gap.name.removeprefix("NVMLError_")
        if gap.absent:
            yield subject.skips("p2p.status-not-offered", pairs=count, error=error, number=gap.code)
        elif gap.code in LOST:
            yield subject.unknown("p2p.gpu-lost", pairs=count, number=gap.code, because_of="inventory")
        elif gap.code == DEFECT:
            yield subject.unknown("p2p.status-unreadable", pairs=count, error=error)
        else:
            yield subject.unknown("p2p.status-failed", pairs=count, error=error, number=gap.code)


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
        subject = _subject(nvml, dead, "NVLink not OK", name="host")
        code = "p2p.fabric-not-set-up" if switched else "p2p.nvlinks-unused"
        yield subject.fails(code, f"{len(dead)} pair{'s' * (len(dead) > 1)} without NVLink P2P", "OK")


def _subject(
    nvml: NvmlReading, pairs: list[Place], status: str, lines: tuple[str, ...] = (), *, name: str | None = None
) -> Subject:
    names = ["-".join(nvml.gpus[place].pci_bus_id for place in pair) for pair in pairs]
    more = (f"and {len(names) - SHOWN} more pairs",) if len(names) > SHOWN else ()
    return Subject(
        check=NAME,
        name=name or (f"pair:{names[0]}" if len(names) == 1 else "host"),
        evidence=(*lines, *(f"{CALL} {name}: {status}" for name in names[:SHOWN]), *more),
    )


CHECK = Check(NAME, frozenset({"hardware", "quick"}), evaluate=evaluate, needs=("nvml", "pci", "system"))
