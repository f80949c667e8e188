"""Which GPUs this session may use: three facts that are never mixed.

A GPU exists if the PCI bus shows it. This session may use it unless access to its device file is denied by a device
cgroup (EPERM), or it is in a container that was not given the file. It responds if NVML lists it. NVML omits a GPU that
it may not open, or counts it and denies the handle (NVML_ERROR_NO_PERMISSION, documented at nvmlDeviceGetCount_v2).

SLURM_STEP_GPUS and SLURM_JOB_GPUS are the numbers of the device files, whatever a cgroup hides (sbatch and srun manual
pages; gres.conf, File=). Variables hide nothing: without a cgroup every GPU is evaluated.
"""

from collections.abc import Iterable, Mapping

from gpucheck.checks._nvml import FORBIDDEN, on_the_bus
from gpucheck.knowledge.codes import Subject, reported
from gpucheck.model import DeviceFile, Finding, NvmlGap, NvmlReading, Partial, PciDevice, Verdict
from gpucheck.model.facts import Facts
from gpucheck.model.finding import bus_ids

WSL = "wsl"
SESSION_NEEDS = ("nvml", "pci", "system", "device_files")


def session(facts: Facts) -> Partial | None:
    """Return what this session may use, None if that is every GPU."""
    nvml, files = facts.nvml, facts.device_files
    on_bus = [device.bus_id for device in on_the_bus(facts) if not device.is_passed_through]
    listed = [gpu.pci_bus_id for gpu in nvml.gpus] if isinstance(nvml, NvmlReading) else []
    errors = {file.bus_id: file.error for file in files if file.bus_id}
    missing = [bus_id for bus_id in on_bus if bus_id not in listed]
    if not listed and control_denied(files):
        hidden = missing
    else:
        hidden = [bus_id for bus_id in missing if errors.get(bus_id) == "EPERM"]
    if hidden:
        return Partial(usable=_rest(on_bus, hidden), hidden=tuple(hidden), by="device-cgroup")
    if facts.system.container and isinstance(nvml, NvmlReading) and not refused_handles(nvml, 0):
        hidden = [bus_id for bus_id in missing if errors.get(bus_id, "ENOENT") == "ENOENT"]
    return Partial(usable=_rest(on_bus, hidden), hidden=tuple(hidden), by="container") if hidden else None


def _rest(on_bus: list[str], hidden: list[str]) -> tuple[str, ...]:
    return tuple(bus_id for bus_id in on_bus if bus_id not in hidden)


def control_denied(files: Iterable[DeviceFile]) -> bool:
    """Return whether a device cgroup denies the file through which every program reaches the driver."""
    return any(file.name == "nvidiactl" and file.error == "EPERM" for file in files)


def allotted(environment: Mapping[str, str]) -> frozenset[int]:
    """Return the device numbers that Slurm allotted to this step, job or prolog; empty if it names none.

    A step has the variables of its job, which may be those of another node: they count outside steps only.
    """
    job = "" if "SLURM_STEP_ID" in environment else environment.get("SLURM_JOB_GPUS", "")
    found: set[int] = set()
    for word in (environment.get("SLURM_STEP_GPUS") or job).split(","):
        first, _, last = word.strip().partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            found.update(range(int(first), min(int(last or first), int(first) + 255) + 1))
    return frozenset(found)


def refused_handles(nvml: NvmlReading, hidden: int) -> list[NvmlGap]:
    """Return the failures of GPUs that NVML counts and gives no handle for, without those of so many hidden GPUs."""
    gaps = [gap for gap in nvml.gaps if gap.subject.startswith("gpu index ")]
    explained = [gap for gap in gaps if gap.code in FORBIDDEN][:hidden]
    return [gap for gap in gaps if gap not in explained]


def session_finding(subject: Subject, share: Partial, facts: Facts) -> Finding:
    """Return what this session may use, once for the host: SKIP, or UNKNOWN without a GPU of its own."""
    by_gpu = {file.bus_id: file for file in facts.device_files if file.bus_id}
    container = facts.system.container
    lines = tuple(f"/dev/{by_gpu[one].name} ({one}): {by_gpu[one].error}" for one in share.hidden if one in by_gpu)
    subject = subject.with_evidence(*(lines or share.hidden))
    usable, total = len(share.usable), len(share.usable) + len(share.hidden)
    if share.by == "device-cgroup":
        if not usable:
            return subject.unknown("session.all-gpus-hidden", "0 GPUs", total=total)
        numbers = tuple(f"/dev/{by_gpu[one].name}" if one in by_gpu else one for one in share.usable)
        return subject.skips("session.some-gpus-hidden", usable=numbers, count=usable, total=total)
    if not usable:
        return subject.unknown("session.container-without-gpus", "0 GPUs", container=container, total=total)
    # How many GPUs the container toolkit was to add; in a job of Slurm its share decides, whatever an image sets.
    chosen, requested = facts.environment.get("NVIDIA_VISIBLE_DEVICES", ""), 0
    if not ("SLURM_JOB_ID" in facts.environment or "MIG" in chosen or ":" in chosen or chosen in ("", "void", "none")):
        requested = total if chosen == "all" else len({word for word in chosen.split(",") if word})
    if requested > usable:
        return subject.unknown("session.fewer-than-requested", f"{usable} GPUs", f"{requested}", requested=requested)
    return subject.skips("session.container-with-some-gpus", container=container, count=usable, total=total)


def judged(findings: Iterable[Finding], share: Partial, pci: Iterable[PciDevice]) -> tuple[Finding, ...]:
    """Return findings as they count for this session: SKIP if about hidden GPUs, or a port above nothing else.

    The bus and the kernel log of the node show these GPUs, and their faults are the node's.
    """
    devices = [device for device in pci if device.kind is None]
    theirs = {port for device in devices if device.bus_id in share.hidden for port in device.path}
    theirs -= {port for device in devices if device.bus_id not in share.hidden for port in device.path}
    theirs |= set(share.hidden)
    return tuple(_of_the_node(one, share) if theirs & {*bus_ids(one.subject)} else one for one in findings)


def _of_the_node(finding: Finding, share: Partial) -> Finding:
    if finding.verdict in (Verdict.PASS, Verdict.SKIP):
        return finding
    subject = Subject(check=finding.check, name=finding.subject, unit=finding.unit, evidence=finding.evidence)
    verdict, found = finding.verdict.name, finding.cause or finding.code
    return subject.skips(
        "session.gpu-of-others", finding.seen, finding.wanted, by=share.by, on_the_node=verdict, found=found
    )


def absent(check: str, virtual: str | None) -> Finding | None:
    """Return the SKIP of a check whose subject WSL does not have by design (knowledge/codes/session.yml).

    The GPU belongs to Windows. Programs reach it through /dev/dxg; in Linux there is no kernel module, no device file
    of NVIDIA and no PCI device, and NVML lists no processes (NVIDIA CUDA on WSL user guide, known limitations).
    """
    skips = reported(check).get(Verdict.SKIP, ()) if virtual == WSL else ()
    return next((Subject(check=check).skips(code) for code in skips if code.startswith("session.wsl-")), None)
