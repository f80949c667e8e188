"""NVSwitch fabric: has every GPU joined it, is it healthy, and does the fabric manager match the driver?

Sources: nvmlDeviceGetGpuFabricInfo (state 3 = completed; status counts only then, 0 = success) with its health mask;
NVSwitch chips by PCI class, or the model of boards whose switches are no PCI devices (HGX B200 and B300); NVLinks that
lead to a switch; NVML's P2P status over NVLink; the nvidia-fabricmanager unit and package, and nvlsm where the switches
are of NVLink 5. Fabric manager starts only with the version of the driver; otherwise CUDA returns 802 (system not
ready) on a host where nvidia-smi looks fine.

The state decides: the service only explains it. It may run on the host of a guest, in a service VM, in a driver
container, or, for a rack, on the switch trays.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

from gpucheck.checks._nvml import evidence, gaps_of, lost_gaps, not_reported, with_gpus
from gpucheck.checks._services import NOT_FOUND, unit_lines
from gpucheck.checks.nvlink._fabric_health import (
    NAME,
    clique_finding,
    health_findings,
    is_nvlink5_board,
    is_tray_gpu,
)
from gpucheck.knowledge.codes import Subject
from gpucheck.model import (
    DEFECT,
    NOT_IN_LIBRARY,
    Check,
    Fabric,
    Finding,
    Gpu,
    NvmlGap,
    NvmlReading,
    PackageVersion,
    Verdict,
)
from gpucheck.model.facts import Facts
from gpucheck.topology import NvLinks
from gpucheck.topology.view import FAR_END, p2p_status

UNIT = "nvidia-fabricmanager"
# The package's name on deb and rpm systems, before and since branch 580; the Ubuntu archive keeps a branch suffix.
PACKAGES = ("nvidia-fabricmanager", "nvidia-fabric-manager", "nvidia-fabricmanager-580")
NVLSM = "nvlsm"
NOT_SET_UP = "p2p.fabric-not-set-up"  # what denied access over NVLink shows on a board with NVSwitches
CALLS = ("nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetGpuFabricInfo")
STATUS = {3: "not supported", 23: "insufficient resources", 999: "unknown error"}  # NVML return codes


def more(facts: Facts) -> tuple[str, ...]:
    """NVLSM matters where a board that needs it is not ready."""
    gpus = facts.nvml.gpus if isinstance(facts.nvml, NvmlReading) else ()
    waiting = any(gpu.fabric and not _ready(gpu.fabric) and is_nvlink5_board(gpu) for gpu in gpus)
    return (f"package:{NVLSM}",) if waiting else ()


def _lacks_nvlsm(facts: Facts) -> bool:
    return bool(more(facts)) and facts.packages is not None and not facts.installed([NVLSM])


def _service(facts: Facts) -> str | None:
    """Return the state of fabric manager, None where no unit of it is seen."""
    state = facts.services[UNIT]
    return None if state == NOT_FOUND else state


def _elsewhere(facts: Facts) -> bool:
    """Whether fabric manager may run where this process cannot see it."""
    return bool(facts.system.virtual or facts.system.container) or facts.services[UNIT] is None


def _down(facts: Facts) -> bool:
    """Whether fabric manager was seen not running on a host where it has to run."""
    service = _service(facts)
    return service != "active" and (service is not None or not _elsewhere(facts))


def _ready(fabric: Fabric) -> bool:
    return fabric.state == "completed" and fabric.status == 0


@with_gpus(NAME)
def evaluate(facts: Facts, nvml: NvmlReading) -> Iterator[Finding]:
    """SKIP without a fabric; else findings for its state, its health and its manager."""
    unread = [gpu for gpu in nvml.gpus if gpu.fabric is None and _refused(nvml, gpu)]
    lost = [gpu for gpu in nvml.gpus if lost_gaps(nvml, gpu)]  # what they answered before is not their state any more
    members = [gpu for gpu in nvml.gpus if gpu.fabric and gpu.fabric.state != "not-supported" and gpu not in lost]
    outside = [gpu for gpu in nvml.gpus if gpu.fabric and gpu not in (*members, *lost) and is_tray_gpu(gpu)]
    nvlinks = NvLinks(nvml.gpus, facts.pci)
    switched = _switches(facts) or any(nvlinks.switches(place) for place in range(len(nvml.gpus)))
    for gpu in (*unread, *(gpu for gpu in lost if gpu not in unread and gpu.fabric)):
        yield from filter(None, [not_reported(NAME, nvml, gpu, *CALLS, what="fabric state")])
    if members:
        yield from _registered(facts, nvml, members)
    elif any(gpu.active_nvlinks for gpu in outside):
        yield _no_state(outside)
    elif unread or lost:
        return
    elif switched:
        yield from _without_state(facts, nvml, nvlinks)
    else:
        yield Subject(check=NAME).skips("nvlink.no-fabric" if facts.pci else "nvlink.no-fabric-or-bus")


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


def _registered(facts: Facts, nvml: NvmlReading, members: list[Gpu]) -> Iterator[Finding]:
    state = _state(facts, members)
    yield state
    yield from health_findings(members)
    yield from filter(None, [clique_finding(members)])
    yield from _manager(facts, nvml, state)


def _far_end_refused(nvml: NvmlReading) -> NvmlGap | None:
    if any(link.remote_kind == "switch" for gpu in nvml.gpus for link in gpu.nvlinks):
        return None
    gaps = [gap for gap in nvml.gaps if gap.call in FAR_END]
    return next((gap for gap in gaps if not gap.absent), next(iter(gaps), None))


def _refused(nvml: NvmlReading, gpu: Gpu) -> bool:
    return any(not gap.absent for gap in gaps_of(nvml, gpu, *CALLS))


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
    """Return why fabric manager is down: it does not start on a driver of another version than its own."""
    driver = facts.nvml.driver_version if isinstance(facts.nvml, NvmlReading) else None
    known = driver is not None and not facts.system.container  # not reported, or packages of the container
    mismatched = known and any(_release(package) != driver for package in facts.installed(PACKAGES))
    return "fabric-version-mismatch" if mismatched else "fabric-manager-down"


def _release(package: PackageVersion) -> str:
    """Without epoch and package revision: ``1:580.178.04-1`` is 580.178.04."""
    return (package.version.partition(":")[2] or package.version).split("-")[0]


def _no_state(outside: list[Gpu]) -> Finding:
    """Seen on GB200 trays whose switch trays were not set up (gpud#1108)."""
    lines = tuple(f"{gpu.pci_bus_id}: state not-supported, {gpu.active_nvlinks} NVLinks active" for gpu in outside)
    host = Subject(check=NAME, evidence=lines)
    return host.warns("nvlink.tray-outside-fabric", f"0 of {len(outside)} GPUs registered", "all registered")


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
    unreported = "this NVML has no fabric call" if _no_call(nvml) else "no GPU reports a registration (before Hopper)"
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


def _no_call(nvml: NvmlReading) -> bool:
    return any(gap.call in CALLS and gap.code == NOT_IN_LIBRARY for gap in nvml.gaps)


def _manager(facts: Facts, nvml: NvmlReading, state: Finding) -> Iterator[Finding]:
    """One finding a package. state: the finding about the fabric, which may have the mismatch already."""
    host, driver = Subject(check=NAME), nvml.driver_version
    managed = _switches(facts) or any(map(is_nvlink5_board, nvml.gpus))
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


CHECK = Check(
    NAME,
    frozenset({"hardware", "software", "nvlink", "quick"}),
    evaluate=evaluate,
    needs=("nvml", "pci", "system", f"service:{UNIT}", *(f"package:{name}" for name in PACKAGES)),
    more=more,
)
