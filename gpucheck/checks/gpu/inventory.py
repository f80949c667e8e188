"""Inventory: does NVML show every NVIDIA GPU that the PCI bus shows, and does each of them answer?

Sources: nvmlDeviceGetCount, nvmlDeviceGetHandleByIndex, every NVML return code of the pass (15 = GPU is lost, 16 =
reset required), and the PCI class of every vendor 10de function in sysfs. NVML omits GPUs that failed to initialise.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from gpucheck.checks._nvml import (
    FORBIDDEN,
    LOST,
    about,
    all_passed_through,
    evidence,
    lost_gaps,
    not_looked,
    on_the_bus,
    quick_check,
    refusal,
    some_passed_through,
    with_gpus,
)
from gpucheck.checks._session import (
    SESSION_NEEDS,
    WSL,
    allotted,
    refused_handles,
    session,
    session_finding,
)
from gpucheck.knowledge import generation_of, gpu_by_pci_id
from gpucheck.knowledge.codes import Subject
from gpucheck.knowledge.systems import DMI_FILES, known_system
from gpucheck.model import (
    DEFECT,
    NOT_IN_LIBRARY,
    NOT_SUPPORTED,
    DeviceFile,
    Finding,
    Gpu,
    NvmlFailure,
    NvmlGap,
    NvmlReading,
    PciDevice,
)
from gpucheck.model.facts import Facts
from gpucheck.model.finding import Confidence
from gpucheck.printable import counted

NAME = "inventory"
POWER_CABLE = 8
# What a handle call means that may not be made, or is not there.
HANDLE = {**dict.fromkeys(FORBIDDEN, "gpu.handle-denied"), NOT_IN_LIBRARY: "gpu.handle-call-missing"}
SHOWN = 5
# What open(2) of a device file fails with if the GPU behind it is gone.
GONE = ("ENXIO", "EIO", "ENODEV")


def evaluate(facts: Facts) -> Iterator[Finding]:
    """One finding for the count, one more for each GPU that is lost or that only one source knows."""
    nvml, pci = facts.nvml, on_the_bus(facts)
    if isinstance(nvml, NvmlFailure):
        yield not_looked(NAME, nvml)
        return
    gpus = {gpu.pci_bus_id: gpu for gpu in nvml.gpus}
    elsewhere = [device for device in pci if device.is_passed_through]
    on_bus = {device.bus_id: device for device in pci if device not in elsewhere}
    share = session(facts)
    hidden = share.hidden if share else ()
    missing = [on_bus[bus_id] for bus_id in sorted(on_bus.keys() - gpus.keys() - {*hidden})]
    refused = refused_handles(nvml, len(hidden))
    files = {file.bus_id: file for file in facts.device_files if file.bus_id}
    bad = [*_lost(nvml), *_without_a_handle(refused, missing)]
    present = len(on_bus) - len(hidden)
    version = nvml.driver_version
    bad += [_missing(one, len(gpus), present, files.get(one.bus_id), version) for one in missing[len(refused) :]]
    bad += _absent(facts, nvml, on_bus.keys() | gpus.keys())
    unseen = sorted(gpus.keys() - {device.bus_id for device in pci})
    passed = Subject(check=NAME, evidence=tuple(map(_sysfs, elsewhere)))
    if not gpus and not on_bus and not refused and elsewhere:
        yield all_passed_through(passed, elsewhere)
    elif not gpus and not on_bus and not refused:
        yield passed.unknown("gpu.none-found", "0 GPUs")
    elif unseen and facts.system.virtual != WSL:
        lines = [f"nvmlDeviceGetPciInfo: {bus_id} {gpus[bus_id].name}" for bus_id in unseen]
        seen = f"NVML shows {len(gpus)} GPUs, {len(unseen)} of them not visible in /sys"
        yield Subject(check=NAME, evidence=tuple(lines)).unknown("gpu.pci-devices-hidden", seen)
    elif gpus and not bad:
        names = [gpu.name for gpu in nvml.gpus]
        seen = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
        yield Subject(check=NAME, evidence=tuple(map(_what, nvml.gpus))).passes(seen)
    yield from bad
    if share:
        yield session_finding(Subject(check=NAME), share, facts)
    if elsewhere and gpus:
        yield some_passed_through(passed, elsewhere)


def _what(gpu: Gpu) -> str:
    """Return what of a GPU its operator needs: its place in a rack, whose machine it is in, its firmware."""
    rack, health = gpu.health.rack, gpu.health
    place = (
        f"chassis {rack.chassis_serial}, slot {rack.slot}, tray {rack.tray}, module {rack.module_id}" if rack else ""
    )
    virtual = f"virtualization {health.virtualization}" if health.virtualization not in (None, "none") else ""
    firmware = f"GSP firmware {health.gsp_firmware}" if health.gsp_firmware else ""
    return f"{gpu.pci_bus_id}: {', '.join(filter(None, (gpu.name, place, virtual, firmware)))}"


def _lost(nvml: NvmlReading) -> Iterator[Finding]:
    """GPUs that responded to their handle and then were lost. A failed pair alone does not show which of the two."""
    gone = [gap for gap in nvml.gaps if gap.code in LOST and not gap.subject.startswith("gpu index ")]
    accounted: set[str] = set()
    for gpu in nvml.gpus:
        gaps = list(lost_gaps(nvml, gpu))
        if gaps:
            accounted.add(gpu.pci_bus_id)
            subject = about(NAME, gpu, *_some(gaps))
            if gaps[0].code == LOST[0]:
                yield subject.fails("gpu.gpu-lost", "GPU lost")
            else:
                yield subject.fails("gpu.reset-required", "GPU requires a reset")
    pairs = [g for g in gone if g.subject.startswith("pair:") and not any(bus_id in g.subject for bus_id in accounted)]
    if pairs:
        subject = Subject(check=NAME, name=pairs[0].subject, evidence=_some(pairs))
        yield subject.fails("gpu.one-of-pair-lost", "a GPU of the pair lost")


def _without_a_handle(refused: list[NvmlGap], missing: list[PciDevice]) -> Iterator[Finding]:
    """GPUs that NVML counts and gives no handle for. NVML counts in the order of the bus: so the missing ones match."""
    for position, gap in enumerate(refused):
        device = missing[position] if len(missing) >= len(refused) else None
        index = gap.subject.removeprefix("gpu index ")
        found = _unopened(gap, device, "" if device else f"GPU at index {index} ")
        yield msgspec.structs.replace(found, gpu_index=int(index)) if device and index.isdecimal() else found


def _unopened(gap: NvmlGap, device: PciDevice | None, name: str) -> Finding:
    lines = (evidence(gap), *((_sysfs(device),) if device else ()))
    subject = Subject(check=NAME, name=f"gpu:{device.bus_id}" if device else "host", evidence=lines)
    code, values = refusal(NAME, gap, f"{name}state")
    if gap.code in (*FORBIDDEN, NOT_IN_LIBRARY, DEFECT):
        return subject.unknown(HANDLE.get(gap.code, code), **values)
    if gap.code == POWER_CABLE:
        return subject.fails("gpu.power-cable-missing", f"{name}power cable missing")
    values = {"call": gap.call, "error": gap.name.removeprefix("NVMLError_"), "nvml_code": gap.code}
    confidence: Confidence = "certain" if gap.code in LOST else "likely"
    return subject.fails("gpu.not-opened", f"{name}cannot be opened", confidence=confidence, **values)


def _missing(device: PciDevice, shown: int, present: int, file: DeviceFile | None, version: str | None) -> Finding:
    error = file.error if file else None
    lines = (_sysfs(device), *((f"/dev/{file.name}: {error or 'opened'}",) if file else ()))
    subject = Subject(check=NAME, name=f"gpu:{device.bus_id}", evidence=lines)
    seen, wanted = f"GPU missing from NVML ({shown} listed)", f"{present}"
    if file and error in ("EACCES", "EPERM"):
        return subject.unknown("gpu.device-file-denied", error=error)
    if file and error == "ENOENT":
        return subject.fails("gpu.device-file-missing", seen, wanted, file=f"/dev/{file.name}", minor=file.minor)
    confidence: Confidence = "certain" if error in GONE else "likely"
    model = gpu_by_pci_id(device.device_id) or generation_of(device.device_id)
    last, branch = model.last_driver_branch if model else None, (version or "").partition(".")[0]
    if device.driver is None and last and branch.isdecimal() and int(branch) > int(last):
        return subject.fails("gpu.driver-too-new", seen, wanted, last=last, version=version)
    if device.driver not in (None, "nvidia"):
        return subject.fails("gpu.other-kernel-driver", seen, wanted, confidence=confidence, driver=device.driver)
    return subject.fails("gpu.not-initialized", seen, wanted, confidence=confidence)


def _absent(facts: Facts, nvml: NvmlReading, known: set[str]) -> Iterator[Finding]:
    """GPUs that Slurm allotted and that neither NVML nor the bus shows. It numbers MIG devices in its own way."""
    if any(gpu.health.mig for gpu in nvml.gpus) or not facts.device_files:
        return
    environment = facts.environment
    files = {file.minor: file for file in facts.device_files}
    numbers = allotted(environment)
    lines = tuple(f"{name}={environment[name]}" for name in sorted(environment) if name.startswith("SLURM_"))
    for number in sorted(numbers):
        file = files.get(number)
        if (file is None and not facts.system.container) or (file and file.error in GONE and file.bus_id not in known):
            answer = f"/dev/nvidia{number}: {file.error if file else 'ENOENT'}"
            subject = Subject(check=NAME, evidence=(answer, *lines))
            yield subject.fails("gpu.allotted-gpu-gone", f"GPU of /dev/nvidia{number} gone")
    count = environment.get("SLURM_GPUS_ON_NODE", "")
    if not numbers and count.isdecimal() and int(count) > len(known):
        subject = Subject(check=NAME, evidence=lines)
        yield subject.fails("gpu.fewer-than-allotted", f"{len(known)} GPUs on the PCI bus", f"{count} or more")


def _sysfs(device: PciDevice) -> str:
    return f"sysfs: {device.bus_id} 10de:{device.device_id} driver {device.driver or 'none'}"


def _some(gaps: list[NvmlGap]) -> tuple[str, ...]:
    lines = tuple(dict.fromkeys(f"{gap.call}: {gap.code} {gap.name}" for gap in gaps))
    return (*lines[:SHOWN], f"and {len(lines) - SHOWN} more calls") if len(lines) > SHOWN else lines


COUNT = "gpu-count"


def count(facts: Facts) -> Iterator[Finding]:
    """GPU count: does the PCI bus show all GPUs that a system of known build has?

    Source: DMI names a few systems of which no variant has fewer GPUs, such as DGX. A GPU that does not start with the
    host is neither on the PCI bus nor in NVML, and the inventory misses none.
    """
    pci = on_the_bus(facts)
    system = known_system(facts.texts, [device.device_id for device in pci])
    if system is None or not system.fixed:
        yield Subject(check=COUNT).skips("gpu.count-not-known")
        return
    buses = (f"sysfs: {device.bus_id} 10de:{device.device_id}" for device in pci)
    subject = Subject(check=COUNT, evidence=(f"{DMI_FILES[1]}: {facts.texts[DMI_FILES[1]]}", *buses))
    seen = f"{counted(len(pci), 'GPU')} on the PCI bus"
    if len(pci) >= system.gpus:
        yield subject.passes(seen)
    else:
        yield subject.fails("gpu.fewer-than-built", seen, str(system.gpus), system=system.name, gpus=system.gpus)


ANSWERS = "nvml-answers"
LACKS_SHOWN = 6
T = TypeVar("T")


@with_gpus(ANSWERS)
def answers(_: Facts, nvml: NvmlReading) -> Iterator[Finding]:
    """NVML answers: does each GPU answer the calls that its equals answer?

    Source: return codes of NVML. "Not supported" is normal for a product, and then all GPUs of it return it; checks do
    not evaluate what a GPU does not have. From one GPU of several equal ones it hides whatever the call would have
    reported, and so does an answer without a value.
    """
    if nvml.nvml_version is None:  # a text, which holds what its author chose
        yield Subject(check=ANSWERS).skips("gpu.answers-not-read")
        return
    groups: dict[tuple[object, ...], list[Gpu]] = defaultdict(list)
    for gpu in nvml.gpus:
        groups[_kind(gpu)].append(gpu)
    equal = [gpus for gpus in groups.values() if len(gpus) > 1]
    found = [finding for gpus in equal for finding in _odd(nvml, gpus)]
    yield from found
    if not equal:
        yield Subject(check=ANSWERS).skips("gpu.no-equal-gpus")
    elif not found:
        yield Subject(check=ANSWERS).passes(f"none of {sum(map(len, equal))} GPUs lacks what its equals report")


def _kind(gpu: Gpu) -> tuple[object, ...]:
    """What decides which calls a GPU answers: its product, and the modes that it is in."""
    health = gpu.health
    return gpu.device_id, bool(health.mig or gpu.mig_uuids), health.ecc, health.virtualization


def _odd(nvml: NvmlReading, gpus: Sequence[Gpu]) -> Iterator[Finding]:
    values = {gpu.pci_bus_id: _reported(nvml, gpu) for gpu in gpus}
    refused = {gpu.pci_bus_id: _refused(nvml, gpu) for gpu in gpus}
    # Half is enough: of two equal GPUs, the one without a value may hide what is wrong with it.
    usual, common = _of_most(values.values(), len(gpus) - 1), _of_most(refused.values(), len(gpus))
    for gpu in gpus:
        lacks = sorted(usual - values[gpu.pci_bus_id])
        odd = refused[gpu.pci_bus_id] - common
        calls = sorted(call for call, code in odd if code == NOT_SUPPORTED)
        # Another error is a reason that the check reports which reads the value.
        if lacks and (calls or not odd):
            lines = tuple(f"{call}: NotSupported (NVML code {NOT_SUPPORTED})" for call in calls[:LACKS_SHOWN])
            names = ", ".join(lacks[:LACKS_SHOWN]) + (", ..." if len(lacks) > LACKS_SHOWN else "")
            yield about(ANSWERS, gpu, *lines).unknown("gpu.answers-differ", lacks=names, equals=len(gpus) - 1)


def _of_most(sets: Iterable[set[T]], count: int) -> set[T]:
    """Return what more of them contain than half of a count."""
    times = Counter(name for one in sets for name in one)
    return {name for name, number in times.items() if 2 * number > count}


def _reported(nvml: NvmlReading, gpu: Gpu) -> set[str]:
    """Return what NVML reports of a GPU, by the names of recordings; ``p2p`` if it does of one of its pairs."""
    health = dict(_values(gpu.health))
    for name, value in tuple(health.items()):
        health |= {f"{name}.{inner}": one for inner, one in _values(value)} if isinstance(value, msgspec.Struct) else {}
    return {*health} | ({"fabric"} if gpu.fabric is not None else set()) | ({"p2p"} if _has_pairs(nvml, gpu) else set())


def _values(struct: msgspec.Struct) -> Iterator[tuple[str, object]]:
    yield from ((name, value) for name in struct.__struct_fields__ if (value := getattr(struct, name)) is not None)


def _refused(nvml: NvmlReading, gpu: Gpu) -> set[tuple[str, int]]:
    """Return calls and their codes. One about a pair counts for a GPU without an answer about any of its pairs."""
    subjects = (f"gpu:{gpu.pci_bus_id}", *(() if _has_pairs(nvml, gpu) else (f"pair:{gpu.pci_bus_id}-",)))
    return {(gap.call, gap.code) for gap in nvml.gaps if gap.subject.startswith(subjects)}


def _has_pairs(nvml: NvmlReading, gpu: Gpu) -> bool:
    place = nvml.gpus.index(gpu)
    return any(status is not None for rows in nvml.p2p.values() for status in rows[place])


CHECK = quick_check(NAME, "hardware", evaluate, (*SESSION_NEEDS, "environment"))
CHECKS = (
    CHECK,
    quick_check(COUNT, "hardware", count, ("pci", *(f"text:{path}" for path in DMI_FILES))),
    quick_check(ANSWERS, "hardware", answers, ("nvml",)),
)
