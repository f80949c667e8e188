"""NVSwitch fabric: has every GPU joined it, is it healthy, and does the fabric manager match the driver?

Sources: nvmlDeviceGetGpuFabricInfo (state 3 = completed; status counts only then, 0 = success) with its health mask;
NVSwitch chips by PCI class, or the model of boards whose switches are no PCI devices (HGX B200 and B300); NVLinks that
lead to a switch; NVML's P2P status over NVLink; the nvidia-fabricmanager unit and package, and nvlsm where the switches
are of NVLink 5. Fabric manager starts only with the version of the driver; otherwise CUDA returns 802 (system not
ready) on a host where nvidia-smi looks fine.

The state decides: the service only explains it. It may run on the host of a guest, in a service VM, in a driver
container, or, for a rack, on the switch trays.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from gpucheck.checks._nvml import about, evidence, gaps_of, lost_gaps, not_reported, quick_check, with_gpus
from gpucheck.knowledge import find_gpu, gpu_by_pci_id
from gpucheck.knowledge.codes import Subject
from gpucheck.model import (
    DEFECT,
    NOT_IN_LIBRARY,
    Fabric,
    Finding,
    Gpu,
    NvmlGap,
    NvmlReading,
    PackageVersion,
    Verdict,
)
from gpucheck.model.facts import Facts
from gpucheck.printable import counted
from gpucheck.topology import NvLinks
from gpucheck.topology.wiring import FAR_END, p2p_status

NAME = "fabric"
UNIT = "nvidia-fabricmanager"
# The package's name on deb and rpm systems, before and since branch 580; the Ubuntu archive keeps a branch suffix.
PACKAGES = ("nvidia-fabricmanager", "nvidia-fabric-manager", "nvidia-fabricmanager-580")
NVLSM = "nvlsm"
NOT_SET_UP = "p2p.fabric-not-set-up"  # what denied access over NVLink shows on a board with NVSwitches
CALLS = ("nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetGpuFabricInfo")
STATUS = {3: "not supported", 23: "insufficient resources", 999: "unknown error"}  # NVML return codes
NOT_FOUND = "not-found"
WORDS = {NOT_FOUND: "no such unit", None: "systemd cannot be queried from here"}


def unit_lines(facts: Facts, unit: str, packages: Iterable[str]) -> tuple[str, ...]:
    """Return evidence: the state of a unit, and those of its packages that are installed."""
    state = facts.services[unit]
    installed = (f"package {package.name} {package.version}" for package in facts.installed(packages))
    return (f"{unit}.service: {WORDS.get(state, state)}", *installed)


def more(facts: Facts) -> tuple[str, ...]:
    """NVLSM matters where a board that needs it is not ready."""
    gpus = facts.nvml.gpus if isinstance(facts.nvml, NvmlReading) else ()
    waiting = any(gpu.fabric and not _ready(gpu.fabric) and _is_nvlink5_board(gpu) for gpu in gpus)
    return (f"package:{NVLSM}",) if waiting else ()


def _lacks_nvlsm(facts: Facts) -> bool:
    return bool(more(facts)) and facts.packages is not None and not facts.installed([NVLSM])


def _service(facts: Facts) -> str | None:
    state = facts.services[UNIT]
    return None if state == NOT_FOUND else state


def _elsewhere(facts: Facts) -> bool:
    return bool(facts.system.virtual or facts.system.container) or facts.services[UNIT] is None


def _down(facts: Facts) -> bool:
    service = _service(facts)
    return service != "active" and (service is not None or not _elsewhere(facts))


def _ready(fabric: Fabric) -> bool:
    return fabric.state == "completed" and fabric.status == 0


@with_gpus(NAME)
def evaluate(facts: Facts, nvml: NvmlReading) -> Iterator[Finding]:
    """SKIP without a fabric; else findings for its state, its health and its manager."""
    refused = {gpu.pci_bus_id for gpu in nvml.gpus if any(not gap.absent for gap in gaps_of(nvml, gpu, *CALLS))}
    unread = [gpu for gpu in nvml.gpus if gpu.fabric is None and gpu.pci_bus_id in refused]
    lost = [gpu for gpu in nvml.gpus if lost_gaps(nvml, gpu)]  # what they answered before is not their state any more
    members = [gpu for gpu in nvml.gpus if gpu.fabric and gpu.fabric.state != "not-supported" and gpu not in lost]
    own, others = {gpu.device_id for gpu in members}, [gpu for gpu in nvml.gpus if gpu not in (*members, *lost)]
    # A GPU that is divided into MIG instances takes no part in copies over NVLink.
    linked = [gpu for gpu in others if gpu.fabric and gpu.active_nvlinks and not gpu.health.mig]
    outside = [gpu for gpu in linked if is_tray_gpu(gpu) or gpu.device_id in own]
    nvlinks = NvLinks(nvml.gpus, facts.pci)
    switched = _switches(facts) or any(nvlinks.switches(place) for place in range(len(nvml.gpus)))
    for gpu in (*unread, *(gpu for gpu in lost if gpu not in unread and gpu.fabric)):
        yield from filter(None, [not_reported(NAME, nvml, gpu, *CALLS, what="fabric state")])
    if members:
        state = _state(facts, members)
        yield from (state, *health_findings(members), *clique_findings(members), *_manager(facts, nvml, state))
    if outside:
        yield _outside(outside)
    elif members or unread or lost:
        return
    elif switched:
        yield from _without_state(facts, nvml, nvlinks)
    else:
        yield Subject(check=NAME).skips("nvlink.no-fabric" if facts.pci else "nvlink.no-fabric-or-bus")


def _outside(gpus: list[Gpu]) -> Finding:
    """GPUs of which the driver reports no fabric, as on GB200 trays whose switch trays were not set up (gpud#1108)."""
    lines = tuple(f"{gpu.pci_bus_id}: state not-supported, {gpu.active_nvlinks} NVLinks active" for gpu in gpus)
    host, seen = Subject(check=NAME, evidence=lines), f"{counted(len(gpus), 'GPU')} not registered"
    if any(map(is_tray_gpu, gpus)):
        return host.warns("nvlink.tray-outside-fabric", seen, "all registered")
    return host.unknown("nvlink.gpus-outside-fabric", seen, "all registered")


def of_gpus(gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """What GPUs report of their fabric, where nothing is known about its manager. Nothing if all is well."""
    for gpu in gpus:
        if gpu.fabric is None or gpu.fabric.state != "completed" or not gpu.fabric.status:
            continue
        seen, tray = f"registration ended with NVML code {gpu.fabric.status}", is_tray_gpu(gpu)
        code = "nvlink.tray-unregistered" if tray else "nvlink.fabric-not-ready"
        cause = "fabric-unregistered" if tray else "fabric-manager-down"
        subject = Subject(check=NAME, name=f"gpu:{gpu.pci_bus_id}", evidence=(f"fabric state completed, {seen}",))
        yield subject.fails(code, seen, "registered", cause=cause, confidence="likely")
    yield from health_findings(gpus)


def _switches(facts: Facts) -> bool:
    return any(device.is_nvswitch for device in facts.pci)


def _far_end_refused(nvml: NvmlReading) -> NvmlGap | None:
    if any(link.remote_kind == "switch" for gpu in nvml.gpus for link in gpu.nvlinks):
        return None
    gaps = [gap for gap in nvml.gaps if gap.call in FAR_END]
    return next((gap for gap in gaps if not gap.absent), next(iter(gaps), None))


def _state(facts: Facts, members: list[Gpu]) -> Finding:
    states = [(gpu.pci_bus_id, gpu.fabric) for gpu in members if gpu.fabric is not None]
    ready = sum(_ready(fabric) for _, fabric in states)
    training = sum(fabric.state == "in-progress" for _, fabric in states)
    tray = any(map(is_tray_gpu, members))
    lines = tuple(f"{bus_id}: {fabric.state}{_status(fabric.state, fabric.status)}" for bus_id, fabric in states)
    host = Subject(check=NAME, evidence=lines if tray else (*lines, *_service_lines(facts)))
    seen, wanted = f"{ready} of {len(members)} GPUs registered", "all registered"
    if ready == len(members):
        return host.passes(seen)
    if tray:
        return host.fails("nvlink.tray-unregistered", seen, wanted)
    if training and not _down(facts):
        code = "nvlink.fabric-training-elsewhere" if _service(facts) is None else "nvlink.fabric-training"
        return host.warns(code, f"{seen}, {training} in progress", wanted)
    sure = "certain" if _down(facts) and _service(facts) is not None else "likely"
    if facts.installed(PACKAGES) and _lacks_nvlsm(facts):
        return host.fails("nvlink.subnet-manager-missing", seen, wanted, confidence=sure)
    hidden = _service(facts) is None and _elsewhere(facts)
    code = "nvlink.fabric-not-ready-elsewhere" if hidden else "nvlink.fabric-not-ready"
    return host.fails(code, seen, wanted, cause=_manager_cause(facts), confidence=sure)


def _status(state: str, status: int | None) -> str:
    if state != "completed" or not status:
        return ""
    return f" with status {STATUS.get(status, 'error')} (NVML code {status})"


def _service_lines(facts: Facts) -> tuple[str, ...]:
    return (*unit_lines(facts, UNIT, PACKAGES), *(("package nvlsm: not installed",) if _lacks_nvlsm(facts) else ()))


def _manager_cause(facts: Facts) -> str:
    driver = facts.nvml.driver_version if isinstance(facts.nvml, NvmlReading) else None
    known = driver is not None and not facts.system.container  # not reported, or packages of the container
    mismatched = known and any(_release(package) != driver for package in facts.installed(PACKAGES))
    return "fabric-version-mismatch" if mismatched else "fabric-manager-down"


def _release(package: PackageVersion) -> str:
    """Without epoch and package revision: ``1:580.178.04-1`` is 580.178.04."""
    return (package.version.partition(":")[2] or package.version).split("-")[0]


def _without_state(facts: Facts, nvml: NvmlReading, nvlinks: NvLinks) -> Iterator[Finding]:
    """GPUs before Hopper, and libraries before 525, report no registration: P2P status and the service have to do."""
    if not _switches(facts) and (refusal := _far_end_refused(nvml)):
        # Links without a far end count as links to a switch that is hidden; these have one that was not reported.
        yield _without_far_end(refusal)
        return
    if any(map(is_tray_gpu, nvml.gpus)):
        yield Subject(check=NAME).skips("nvlink.tray-state-not-reported")
        return
    pairs = [pair for pair in combinations(range(len(nvml.gpus)), 2) if nvlinks.between(*pair).links]
    status = [p2p_status(nvml, pair, ("nvlink",)) for pair in pairs]
    proven = bool(pairs) and all(one == "OK" for one in status)
    no_call = any(gap.call in CALLS and gap.code == NOT_IN_LIBRARY for gap in nvml.gaps)
    unreported = "this NVML has no fabric call" if no_call else "no GPU reports a registration (before Hopper)"
    p2p = f"P2P status over NVLink OK for {status.count('OK')} of {len(pairs)} pairs"
    host = Subject(check=NAME, evidence=(*_service_lines(facts), unreported, p2p))
    if _service(facts) == "active" or (proven and not (_down(facts) and _service(facts))):
        state = host.passes("fabric manager active" if _service(facts) == "active" else p2p)
        yield state
        yield from _manager(facts, nvml, state)
    elif _down(facts):
        sure = "certain" if _service(facts) and not proven else "likely"
        seen = f"fabric manager {_service(facts) or 'not installed'}"
        yield host.fails("nvlink.manager-down", seen, "active", cause=_manager_cause(facts), confidence=sure)
    elif any(one not in ("OK", None) for one in status):
        code = "nvlink.manager-not-in-guest" if facts.services[UNIT] else "nvlink.manager-not-queried"
        yield host.unknown(code, because_of="p2p-status")
    elif pairs:
        yield host.unknown("nvlink.fabric-unproven", ok=status.count("OK"), pairs=len(pairs))
    else:
        yield host.skips("nvlink.fabric-without-pairs")


def _without_far_end(gap: NvmlGap) -> Finding:
    host = Subject(check=NAME, evidence=(evidence(gap),))
    if gap.absent:
        return host.skips("nvlink.far-end-not-offered", call=gap.call, nvml_code=gap.code)
    if gap.code == DEFECT:
        return host.unknown("nvlink.far-end-unreadable", call=gap.call, error=gap.name)
    return host.unknown("nvlink.far-end-unknown", call=gap.call, nvml_code=gap.code, error=gap.name)


def _manager(facts: Facts, nvml: NvmlReading, state: Finding) -> Iterator[Finding]:
    """One finding a package. state: the finding about the fabric, which may have the mismatch already."""
    host, driver = Subject(check=NAME), nvml.driver_version
    managed = _switches(facts) or any(map(_is_nvlink5_board, nvml.gpus))
    if not managed or facts.system.container or driver is None:  # nothing to manage here, or to compare with
        return
    if not facts.installed(PACKAGES) and state.verdict is Verdict.PASS:
        yield host.skips("nvlink.manager-elsewhere")
    for package in facts.installed(PACKAGES):
        seen = f"{package.name} {package.version}"
        if _release(package) == driver:
            yield host.passes(seen)
        elif state.cause != "fabric-version-mismatch":
            yield host.fails("nvlink.manager-version", seen, driver, package=package.name, driver_version=driver)


# Fields of the health mask as in nvml.h (NVML_GPU_FABRIC_HEALTH_MASK_*): shifts of two bits, 1 is true, 2 false, 0 not
# reported, as on drivers that have the call and no health (gpud#1106: a healthy GB200 reports 0 throughout).
TRUE = 1
ROUTE_UNHEALTHY = 4
LIMITS = {"degraded bandwidth": 0, "route recovery in progress": 2, "access timeout recovery in progress": 6}
RECORDED = {"partition assigned": 12, "fabric manager connection": 14}
CONFIGURATION_SHIFT, FINE = 8, (0, 1)
CONFIGURATION = {
    2: "incorrect system GUID",
    3: "incorrect chassis serial number",
    4: "no partition",
    5: "insufficient NVLinks",
    6: "incompatible GPU firmware",
    7: "invalid location",
    8: "invalid GPU state",
}
INSUFFICIENT_NVLINKS = 5


def health_findings(gpus: Sequence[Gpu]) -> Iterator[Finding]:
    for gpu in gpus:
        if gpu.fabric is not None and gpu.fabric.state == "completed":
            found = _evaluate(gpu, gpu.fabric.health_mask) if gpu.fabric.health_mask else None
            yield from filter(None, [found or _summary(gpu, gpu.fabric)])


def _evaluate(gpu: Gpu, mask: int) -> Finding | None:
    states = [f"{name}: {mask >> shift & 3}" for name, shift in ({"route unhealthy": ROUTE_UNHEALTHY} | LIMITS).items()]
    states += [f"{name}: {mask >> shift & 3}" for name, shift in RECORDED.items() if mask >> shift & 3]
    configuration = mask >> CONFIGURATION_SHIFT & 0xF
    line = f"fabric health mask 0x{mask:x} (1 = true, 2 = false): {', '.join(states)}, configuration: {configuration}"
    subject = about(NAME, gpu, line)
    tray = is_tray_gpu(gpu)
    if configuration not in FINE:
        seen = f"incorrect fabric configuration: {CONFIGURATION.get(configuration, f'code {configuration}')}"
        code = "nvlink.tray-configuration-rejected" if tray else "nvlink.configuration-rejected"
        cause = "nvlink-down" if configuration == INSUFFICIENT_NVLINKS else "fabric-degraded"
        return subject.fails(code, seen, "none", cause=cause)
    if mask >> ROUTE_UNHEALTHY & 3 == TRUE:
        code = "nvlink.tray-route-unhealthy" if tray else "nvlink.route-unhealthy"
        return subject.fails(code, "fabric route unhealthy", "healthy")
    limits = tuple(name for name, shift in LIMITS.items() if mask >> shift & 3 == TRUE)
    return _limited(subject, f"fabric with {', '.join(limits)}", limits, tray=tray) if limits else None


def _limited(subject: Subject, seen: str, limits: tuple[str, ...], *, tray: bool) -> Finding:
    code = "nvlink.tray-fabric-limited" if tray else "nvlink.fabric-limited"
    return subject.warns(code, seen, "full bandwidth", limits=limits)


def _summary(gpu: Gpu, fabric: Fabric) -> Finding | None:
    """The driver's own verdict, where no bit of the mask shows more."""
    line = f"fabric health: {fabric.health_summary}"
    subject, tray = about(NAME, gpu, line), is_tray_gpu(gpu)
    if fabric.health_summary == "unhealthy":
        code = "nvlink.tray-fabric-unhealthy" if tray else "nvlink.fabric-unhealthy"
        return subject.fails(code, "fabric unhealthy", "healthy")
    if fabric.health_summary == "limited-capacity":
        return _limited(subject, "fabric with limited capacity", ("limited capacity",), tray=tray)
    return None


def clique_findings(gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """Yield WARN where the registered GPUs of one host are not in one clique of one cluster."""
    cliques = Counter(
        (gpu.fabric.cluster_uuid, gpu.fabric.clique_id)
        for gpu in gpus
        if gpu.fabric is not None and gpu.fabric.state == "completed" and gpu.fabric.status == 0
    )
    if len(cliques) < 2:
        return
    parts = [f"clique {clique} ({count} GPU{'s' * (count > 1)})" for (_, clique), count in cliques.items()]
    lines = tuple(
        f"{gpu.pci_bus_id}: cluster {gpu.fabric.cluster_uuid}, clique {gpu.fabric.clique_id}"
        for gpu in gpus
        if gpu.fabric is not None
    )
    code = "nvlink.tray-fabric-divided" if any(map(is_tray_gpu, gpus)) else "nvlink.fabric-divided"
    yield Subject(check=NAME, evidence=lines).warns(code, f"GPUs in {', '.join(parts)}", "one clique")


def is_tray_gpu(gpu: Gpu) -> bool:
    """Whether the GPU belongs to a rack's fabric: by its name, else by its cluster, else by its PCI id."""
    named, numbered = find_gpu(gpu.name), gpu_by_pci_id(gpu.device_id)
    if named is not None:
        return named.fabric == "imex"
    return in_cluster(gpu) or (numbered is not None and numbered.fabric == "imex")


def _is_nvlink5_board(gpu: Gpu) -> bool:
    """Whether the GPU is one of an HGX B200 or B300, whose switches no PCI device shows: they are managed through the
    InfiniBand functions of the board, by fabric manager and NVLSM.
    """
    model = find_gpu(gpu.name) or gpu_by_pci_id(gpu.device_id)  # the driver knows ids that are not in the table
    return model is not None and model.fabric == "nvlink5"


def in_cluster(gpu: Gpu) -> bool:
    """Whether the driver reports a cluster that the GPU shares with other hosts."""
    return gpu.fabric is not None and gpu.fabric.spans_hosts


NEEDS = ("nvml", "pci", "system", f"service:{UNIT}", *(f"package:{name}" for name in PACKAGES))
CHECK = quick_check(NAME, "hardware software nvlink", evaluate, NEEDS, more=more)
