"""What the host gives to programs on its GPUs: device files, memory that may be locked, and the clock of its CPUs."""

import re
from collections.abc import Iterator

from gpucheck.checks._nvml import no_gpus, not_looked, quick_check
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, NvmlFailure
from gpucheck.model.facts import Facts

CPUS = "/sys/devices/system/cpu"
CPUFREQ = f"{CPUS}/cpu0/cpufreq"
GOVERNOR, SCALING_DRIVER = f"{CPUFREQ}/scaling_governor", f"{CPUFREQ}/scaling_driver"
SCALE_THEMSELVES = ("intel_pstate", "amd-pstate-epp")


def _text(facts: Facts, path: str) -> str:
    return (facts.texts[path] or "").strip()


def cpu_governor(facts: Facts) -> Iterator[Finding]:
    """CPU governor: does the CPU keep its clock up for the threads that supply the GPUs?

    Source: /sys/devices/system/cpu/cpu0/cpufreq/scaling_{governor,driver}. ``powersave`` of acpi-cpufreq pins the
    lowest clock; ``powersave`` of intel_pstate and amd-pstate-epp in active mode is a governor that scales, and their
    default.
    """
    governor, driver = _text(facts, GOVERNOR), _text(facts, SCALING_DRIVER)
    evidence = f"{CPUFREQ}: governor {governor or 'not reported'}, driver {driver or 'not reported'}"
    subject = Subject(check="cpu-governor", evidence=(evidence,))
    if not governor and not facts.folders[CPUS]:
        yield subject.unknown("host.cpus-unreadable", path=CPUS)
    elif not governor:
        yield subject.skips("host.cpu-clock-fixed")
    elif governor == "powersave" and not driver:
        yield subject.unknown("host.cpu-driver-unreadable", path=SCALING_DRIVER)
    elif governor == "powersave" and driver not in SCALE_THEMSELVES:
        yield subject.warns("host.cpu-clock-low", f"CPU governor {governor}", "performance or schedutil")
    else:
        yield subject.passes(f"CPU governor {governor} ({driver})" if driver else f"CPU governor {governor}")


GPU_NODE = re.compile(r"nvidia\d+")


def device_nodes(facts: Facts) -> Iterator[Finding]:
    """Device nodes: do the device files exist through which programs reach the driver?

    Source: /dev. CUDA needs nvidiactl, one nvidia<minor> for each GPU, and nvidia-uvm; without the last one NVML works
    and CUDA fails to initialize, which is common in containers.
    """
    every = facts.folders["/dev"]
    names = [name for name in every or () if name.startswith("nvidia")]
    subject = Subject(check="device-nodes", evidence=(f"/dev: {' '.join(names) or 'no nvidia file'}",))
    if isinstance(facts.nvml, NvmlFailure):
        yield not_looked("device-nodes", facts.nvml)
        return
    if every is None:
        yield Subject(check="device-nodes").unknown("host.device-files-unknown")
        return
    gpus = len(facts.nvml.gpus)
    if not gpus:
        yield no_gpus("device-nodes")
        return
    nodes = [name for name in names if GPU_NODE.fullmatch(name)]
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if name not in names]
    if len(nodes) < gpus:
        missing.append(f"{gpus - len(nodes)} of {gpus} GPU files")
    denied = any(file.name == "nvidia-uvm" and file.error == "EPERM" for file in facts.device_files)
    if not missing and denied:
        yield subject.unknown("host.device-file-denied", "no access to /dev/nvidia-uvm")
        return
    if not missing:
        yield subject.passes(f"{len(nodes)} GPU files, nvidiactl, nvidia-uvm")
        return
    seen = f"missing in /dev: {', '.join(missing)}"
    if facts.system.container:
        yield subject.fails("host.device-files-not-passed", seen)
    elif missing == ["nvidia-uvm"]:
        yield subject.warns("host.device-file-not-created", seen)
    else:
        yield subject.fails("host.device-files-missing", seen)


UNLIMITED = -1
ENOUGH_MIB = 65536


def locked_memory(facts: Facts) -> Iterator[Finding]:
    """Locked memory: may this process pin as much memory as RDMA and NCCL need?

    Source: RLIMIT_MEMLOCK. RDMA registers its buffers as locked memory; with a small limit queue pairs fail with
    ENOMEM. Without an RDMA device the limit matters little: CUDA pins through its own driver.
    """
    limit = facts.limits.memlock_bytes
    rdma = ", ".join(name for device in facts.pci for name in device.infiniband_names)
    devices = rdma or "none" if facts.pci else "not visible"
    subject = Subject(check="locked-memory", evidence=(f"RLIMIT_MEMLOCK: {_size(limit)}", f"RDMA devices: {devices}"))
    if limit is None:
        yield subject.unknown("host.memlock-unreadable")
    elif limit == UNLIMITED or limit >> 20 >= ENOUGH_MIB:
        yield subject.passes(_size(limit))
    elif not facts.pci:
        yield subject.unknown("host.memlock-need-unknown", limit=_size(limit))
    elif not rdma:
        yield subject.skips("host.memlock-not-needed", _size(limit))
    else:
        yield subject.warns("host.memlock-too-small", _size(limit), "unlimited")


def _size(count: int | None) -> str:
    if count is None:
        return "not readable"
    return "unlimited" if count == UNLIMITED else f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


def _of_cpus(facts: Facts) -> tuple[str, ...]:
    """Whether sysfs shows the CPUs at all matters where there is no frequency scaling, as in most guests."""
    return () if _text(facts, GOVERNOR) else (f"folder:{CPUS}",)


FILES = ("nvml", "system", "device_files", "folder:/dev")
LIMIT = (f"WARN below {ENOUGH_MIB >> 10} GiB: an assumption, no source gives a limit that is enough",)
CHECKS = (
    quick_check(
        "cpu-governor", "software settings", cpu_governor, (f"text:{GOVERNOR}", f"text:{SCALING_DRIVER}"), _of_cpus
    ),
    quick_check("device-nodes", "software", device_nodes, FILES),
    quick_check("locked-memory", "software limits", locked_memory, ("limits", "pci"), limits=LIMIT),
)
