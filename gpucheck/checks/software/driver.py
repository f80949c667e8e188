"""Driver: is the NVIDIA kernel module loaded, does NVML load, and are they the same version?

Sources: nvmlInit and nvmlSystemGetDriverVersion; /sys/module/nvidia/version; /proc/driver/nvidia/version; the module
installed for the running kernel; /dev. NVML return codes: NVIDIA nvml.h (API 13).
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from gpucheck.checks._nvml import WITHOUT_A_GPU, reason
from gpucheck.checks._session import ADOPTED, OUTSIDE, control_denied
from gpucheck.checks.software.module_flavour import needed_flavour
from gpucheck.model import (
    CRASHED,
    DEFECT,
    LATE,
    NOT_STARTED,
    Check,
    DriverState,
    Finding,
    Host,
    NvmlFailure,
    NvmlGap,
    NvmlReading,
    Verdict,
)
from gpucheck.model.finding.about import About, Confidence

NAME = "driver"
HOST = About(check=NAME)

REBOOT = (
    "reboot the host, or unload every nvidia module while nothing uses the GPUs, then: gpucheck verify --only driver"
)
PROVISION = (
    "install the driver that gpucheck stack resolve prints (in a gpucheck checkout: make provision INVENTORY=...)"
)
CONTAINER = "start the container with --gpus all, or with the CDI device nvidia.com/gpu=all"
# NVML return codes of nvmlInit
DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, VERSION_MISMATCH, OF_ANY_KIND = 9, 12, 18, 999
LOST, FORBIDDEN = (15, 16), (4, 17)
POWER_CABLE, INTERRUPTS = 8, 10


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver check reads. device_nodes: names in /dev of NVIDIA, None where it cannot be listed.

    denied: a device cgroup denies /dev/nvidiactl.
    """

    nvml: NvmlReading | NvmlFailure
    driver: DriverState
    gpus_on_pci: int
    needed_flavours: frozenset[str] = frozenset()
    device_nodes: tuple[str, ...] | None = None
    container: str | None = None
    denied: bool = False


def probe(host: Host) -> Values:
    gpus = [device for device in host.pci() if device.is_nvidia_gpu]
    nvml, names = host.nvml(), host.list_names("/dev")
    return Values(
        nvml=nvml,
        driver=host.driver(),
        gpus_on_pci=len(gpus),
        needed_flavours=frozenset(map(needed_flavour, gpus)) - {"either"},
        device_nodes=None if names is None else tuple(name for name in names if name.startswith("nvidia")),
        container=host.system().container,
        denied=control_denied(host.device_files()),
    )


def evaluate(values: Values) -> Iterator[Finding]:
    """Evaluate the driver, then what is installed for the next boot."""
    if isinstance(values.nvml, NvmlFailure):
        yield _unusable(values.nvml, values)
        return
    loaded = values.driver.loaded_version
    library = values.nvml.driver_version
    about = HOST.with_evidence(
        f"nvmlSystemGetDriverVersion: {library or 'not reported'}",
        f"/sys/module/nvidia/version: {loaded or 'not readable'}",
    )
    if library is None:
        why = (
            f"The driver version is not known: {', '.join(map(reason, _refusals(values.nvml))) or 'no text returned'}."
        )
        yield about.unknown(why, "cat /proc/driver/nvidia/version; nvidia-smi", "driver version unknown")
        return
    if loaded is not None and loaded != library:
        why = "The driver library was upgraded while the old kernel module stayed loaded."
        yield about.fails(f"kernel module {loaded}, NVML {library}", "one version", why, REBOOT, "driver-mismatch")
        return
    yield about.passes(library)
    yield from _next_boot(values.driver, loaded)


def _refusals(nvml: NvmlReading) -> list[NvmlGap]:
    return [gap for gap in nvml.gaps if gap.call == "nvmlSystemGetDriverVersion"]


def _next_boot(driver: DriverState, loaded: str | None) -> Iterator[Finding]:
    installed = driver.installed_version
    if installed is None or loaded is None or installed == loaded:
        return
    lines = (f"module file of the running kernel: {installed}", f"/sys/module/nvidia/version: {loaded}")
    seen = f"driver {loaded} loaded, {installed} installed"
    why = "Another driver is installed for the next boot; until then new CUDA programs may fail to start."
    yield HOST.with_evidence(*lines).warns(seen, "the same version", why, REBOOT, "driver-mismatch")


def _unusable(failure: NvmlFailure, values: Values) -> Finding:
    driver = values.driver
    installed = " ".join(filter(None, (driver.installed_version, driver.installed_flavour)))
    about = HOST.with_evidence(
        f"{failure.call}: {failure.code} {failure.name} {failure.detail}".rstrip(),
        f"/sys/module/nvidia/version: {driver.loaded_version or 'not present'}",
        f"installed module: {installed or 'not found'}",
        f"nouveau: {'loaded' if driver.nouveau_loaded else 'not loaded'}",
        f"NVIDIA GPUs on the PCI bus: {values.gpus_on_pci}",
        f"/dev: {_nodes(values.device_nodes)}",
    )
    if values.gpus_on_pci == 0 and driver.loaded_version is None and failure.code in (9, 12):
        why = "The PCI bus shows no NVIDIA display or 3D controller, so there is nothing to check."
        fix = "in a virtual machine or container pass a GPU through; on bare metal check seating, power and BIOS; "
        return about.unknown(why, fix + WITHOUT_A_GPU, "no NVIDIA GPU and no NVIDIA driver")
    means = meaning(failure, values)
    seen = f"NVML not available: {failure.call} {'returned' if failure.code > 0 else 'ended with'} {failure.name}"
    fields = {"seen": seen, "why": means.why, "fix": means.fix}
    return about.finding(means.verdict, cause=means.cause, confidence=means.confidence, **fields)


def _nodes(names: tuple[str, ...] | None) -> str:
    return "cannot be listed" if names is None else " ".join(names) or "no nvidia file"


class Meaning(NamedTuple):
    """A verdict about the driver, with its reason and fix."""

    verdict: Verdict
    why: str
    fix: str
    cause: str | None = None
    confidence: Confidence | None = None


def meaning(failure: NvmlFailure, values: Values) -> Meaning:
    if values.denied and failure.code in (*FORBIDDEN, DRIVER_NOT_LOADED, OF_ANY_KIND):
        # runc#3708: a reload of systemd resets the device rules of a running container.
        why = f"A device cgroup denies access to /dev/nvidiactl, whatever the driver's state is. {ADOPTED}"
        fix = "restart the container" if values.container else f"leave the cgroup: {OUTSIDE}"
        return Meaning(Verdict.UNKNOWN, why, fix)
    if failure.code < 0:
        return _without_a_code(failure)
    if failure.code == LIBRARY_NOT_FOUND:
        return _no_library(values)
    if failure.code == DRIVER_NOT_LOADED:
        return _not_loaded(values)
    if failure.code == VERSION_MISMATCH:
        why = "The NVML library and the loaded kernel module have different versions (an upgrade without a reboot)."
        fix = f"restart the container: it keeps the library of its start; else {REBOOT}" if values.container else REBOOT
        return Meaning(Verdict.FAIL, why, fix, "driver-mismatch", "certain")
    if failure.code in LOST:
        why = "A GPU fell off the bus or needs a reset."
        fix = "read the Xid in dmesg, then reboot; if it returns check power, riser and slot"
        return Meaning(Verdict.FAIL, why, fix, "gpu-lost", "certain")
    if failure.code == POWER_CABLE:
        why = "NVML reports that the external power cables of a GPU are not attached properly."
        return Meaning(Verdict.FAIL, why, "power off, check the power cables of every GPU")
    if failure.code == INTERRUPTS:
        why = "The kernel could not give a GPU its interrupts."
        return Meaning(Verdict.FAIL, why, "read dmesg for NVRM lines; check BIOS settings for PCIe and the IOMMU")
    if failure.code in FORBIDDEN:
        why = "The operating system denied access to the GPU device files."
        return Meaning(Verdict.UNKNOWN, why, "run as root, or give this user or container access to /dev/nvidia*")
    why = "NVML failed in a way that has no known single cause."
    return Meaning(
        Verdict.UNKNOWN, why, "run nvidia-smi, read dmesg for NVRM lines, then: gpucheck verify --only driver"
    )


def _without_a_code(failure: NvmlFailure) -> Meaning:
    """Only a call that crashed or did not return speaks of the driver."""
    report = "collect nvidia-bug-report.sh if it still runs, then reboot the host"
    if failure.code == LATE:
        why = f"{failure.call} did not return in two tries: the driver is unresponsive."
        return Meaning(Verdict.FAIL, why, f"read dmesg for NVRM and Xid lines; {report}", "wedged-driver", "likely")
    if failure.code == CRASHED:
        why = f"The NVML library crashed in {failure.call}: the library or the driver below it is broken."
        fix = f"compare nvidia-smi, which uses the same library; reinstall the driver's libraries; {report}"
        return Meaning(Verdict.FAIL, why, fix, "wedged-driver", "possible")
    if failure.code == NOT_STARTED:
        why = (
            "The process that queries NVML could not start or was killed from outside; this is not the driver's doing."
        )
        return Meaning(
            Verdict.UNKNOWN,
            why,
            "check memory and process limits (free -h; ulimit -a; dmesg for oom), try again",
            "host-resources",
            "likely",
        )
    if failure.code != DEFECT:
        why = f"NVML unknown: the failure has code {failure.code}, which neither NVML nor gpucheck defines."
        return Meaning(Verdict.UNKNOWN, why, "query the host again: gpucheck verify --only driver")
    why = "gpucheck failed while it read NVML. This is a defect of gpucheck, not of the driver."
    return Meaning(Verdict.UNKNOWN, why, "report it with the output of: gpucheck verify --only driver --format json")


def _no_library(values: Values) -> Meaning:
    if values.driver.loaded_version is None:
        why = "libnvidia-ml.so.1 is not installed or not on the loader path, and the nvidia module is not loaded."
        return Meaning(Verdict.FAIL, why, CONTAINER if values.container else PROVISION, "driver-not-loaded", "certain")
    why = "The nvidia module is loaded, and libnvidia-ml.so.1 is not installed here or not on the loader path."
    if values.container:
        return Meaning(Verdict.FAIL, why, CONTAINER, "container-runtime", "likely")
    return Meaning(Verdict.FAIL, why, f"ldconfig -p | grep libnvidia-ml; {PROVISION}")


def _not_loaded(values: Values) -> Meaning:
    """NVML's 9 is "NVML cannot reach the driver"; the kernel shows whether it is loaded."""
    driver = values.driver
    if driver.loaded_version is not None:
        missing = values.device_nodes is not None and "nvidiactl" not in values.device_nodes
        how = "/dev/nvidiactl does not exist" if missing else "usually missing or inaccessible device files"
        why = f"The nvidia module is loaded, and NVML cannot reach it: {how}."
        fix = CONTAINER if values.container else "nvidia-modprobe -c0 -u, and enable nvidia-persistenced"
        return Meaning(Verdict.FAIL, why, fix, "device-node-missing", "certain" if missing else "likely")
    if driver.nouveau_loaded:
        why = "The nouveau driver is bound to the GPUs, so the nvidia module cannot bind them."
        fix = "blacklist nouveau, rebuild the initramfs and reboot (make provision does this in a gpucheck checkout)"

        return Meaning(Verdict.FAIL, why, fix, "nouveau-loaded", "certain")
    installed = driver.installed_flavour
    if installed is not None and values.needed_flavours - {installed}:
        why = f"The {installed} kernel modules are installed, and these GPUs need the other flavor: no GPU is bound."
        return Meaning(Verdict.FAIL, why, f"install the other flavor: {PROVISION}", "module-flavour-wrong", "certain")
    why = "The nvidia module is not loaded: not built for this kernel, not signed (Secure Boot), or not installed."
    fix = f"modprobe nvidia, then read dmesg and dkms status; or {PROVISION}"
    return Meaning(Verdict.FAIL, why, fix, "driver-not-loaded", "certain")


CHECK = Check(NAME, frozenset({"software", "quick"}), probe, evaluate)
