"""Driver: is the NVIDIA kernel module loaded, does NVML load, and are they the same version?

Sources: nvmlInit and nvmlSystemGetDriverVersion; /sys/module/nvidia/version; /proc/driver/nvidia/version; the module
installed for the running kernel. NVML return codes: NVIDIA nvml.h (API 13).
"""

from collections.abc import Iterator

import msgspec

from gpucheck.checks.module_flavour import needed_flavour
from gpucheck.model import Check, DriverState, Finding, Host, NvmlFailure, NvmlReading, Verdict

NAME = "driver"

REBOOT = (
    "reboot the host, or unload every nvidia module while nothing uses the GPUs, then: gpucheck verify --only driver"
)
PROVISION = "install the planned driver: make provision INVENTORY=... (or see: gpucheck stack resolve)"


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver check reads."""

    nvml: NvmlReading | NvmlFailure
    driver: DriverState
    gpus_on_pci: int
    needed_flavours: frozenset[str] = frozenset()


def probe(host: Host) -> Values:
    """Ask NVML, the kernel and the PCI bus."""
    gpus = [device for device in host.pci() if device.is_nvidia_gpu]
    return Values(
        nvml=host.nvml(),
        driver=host.driver(),
        gpus_on_pci=len(gpus),
        needed_flavours=frozenset(map(needed_flavour, gpus)) - {"either"},
    )


def evaluate(values: Values) -> Iterator[Finding]:
    """Judge the driver as a whole, then what is installed for the next boot."""
    if isinstance(values.nvml, NvmlFailure):
        yield _unusable(values.nvml, values)
        return
    loaded = values.driver.loaded_version
    library = values.nvml.driver_version
    evidence = (f"nvmlSystemGetDriverVersion: {library}", f"/sys/module/nvidia/version: {loaded}")
    if loaded is not None and loaded != library:
        yield _finding(
            Verdict.FAIL,
            seen=f"kernel module {loaded}, NVML {library}",
            wanted="one version",
            cause="driver-mismatch",
            why="the library was upgraded under a loaded module",
            fix=REBOOT,
            evidence=evidence,
        )
        return
    yield _finding(Verdict.PASS, seen=library, wanted="loaded, one version", evidence=evidence)
    yield from _next_boot(values.driver, loaded)


def _next_boot(driver: DriverState, loaded: str | None) -> Iterator[Finding]:
    installed = driver.installed_version
    if installed is None or loaded is None or installed == loaded:
        return
    yield _finding(
        Verdict.WARN,
        seen=f"loaded {loaded}, installed {installed}",
        wanted="loaded = installed",
        cause="driver-mismatch",
        why="another driver is installed for the next boot; until then new CUDA programs may fail to start",
        fix=REBOOT,
        evidence=(f"module file of the running kernel: {installed}", f"/sys/module/nvidia/version: {loaded}"),
    )


def _unusable(failure: NvmlFailure, values: Values) -> Finding:
    evidence = (
        f"{failure.call}: {failure.code} {failure.name} {failure.detail}".rstrip(),
        f"/sys/module/nvidia/version: {values.driver.loaded_version}",
        f"installed module: {values.driver.installed_version} {values.driver.installed_flavour or ''}".rstrip(),
        f"nouveau loaded: {values.driver.nouveau_loaded}",
        f"NVIDIA GPUs on the PCI bus: {values.gpus_on_pci}",
    )
    if values.gpus_on_pci == 0 and failure.code in (9, 12):
        return _finding(
            Verdict.UNKNOWN,
            seen="no NVIDIA GPU, no driver",
            wanted="an NVIDIA GPU with its driver",
            why="the PCI bus shows no NVIDIA display or 3D controller, so there is nothing to prove",
            fix="in a virtual machine or container pass a GPU through; on bare metal check seating, power and BIOS",
            evidence=evidence,
        )
    verdict, cause, why, fix = _meaning(failure, values)
    seen = f"{failure.call}: {failure.name}"
    return _finding(verdict, seen=seen, wanted="NVML answers", cause=cause, why=why, fix=fix, evidence=evidence)


def _meaning(failure: NvmlFailure, values: Values) -> tuple[Verdict, str | None, str, str]:
    """Verdict, cause, why and fix of one NVML failure. 3 and 13 (not supported) cannot happen at init."""
    if failure.code == 12:
        return (
            Verdict.FAIL,
            "driver-not-loaded",
            "libnvidia-ml.so.1 is not installed or not on the loader path",
            PROVISION,
        )
    if failure.code == 9 and values.driver.nouveau_loaded:
        why = "nouveau holds the GPUs, so the nvidia module cannot bind them"
        fix = "blacklist nouveau, rebuild the initramfs and reboot (make provision does all three)"
        return Verdict.FAIL, "nouveau-loaded", why, fix
    installed = values.driver.installed_flavour
    if failure.code == 9 and installed is not None and values.needed_flavours - {installed}:
        why = f"the {installed} modules are installed, and these GPUs need the other flavour: no GPU is bound"
        return Verdict.FAIL, "module-flavour-wrong", why, f"install the other flavour: {PROVISION}"
    if failure.code == 9:
        why = "the nvidia module is not loaded: not built for this kernel, not signed (Secure Boot), or not installed"
        return (
            Verdict.FAIL,
            "driver-not-loaded",
            why,
            f"modprobe nvidia, then read dmesg and dkms status; or {PROVISION}",
        )
    if failure.code == 18:
        why = "the NVML library and the loaded kernel module are of different versions (an upgrade without a reboot)"
        return Verdict.FAIL, "driver-mismatch", why, REBOOT
    if failure.code in (15, 16):
        why = "a GPU fell off the bus or needs a reset"
        return (
            Verdict.FAIL,
            "gpu-lost",
            why,
            "read the Xid in dmesg, then reboot; if it returns check power, riser and slot",
        )
    if failure.code in (-1, -2):
        why = "the call never came back or took its process down: the driver is wedged"
        return Verdict.FAIL, "wedged-driver", why, "collect nvidia-bug-report.sh if it still runs, then reboot the host"
    if failure.code in (4, 17):
        why = "the operating system refused access to the GPU device files"
        return Verdict.UNKNOWN, None, why, "run as root, or give this user or container access to /dev/nvidia*"
    why = "NVML failed in a way that has no known single cause"
    return Verdict.UNKNOWN, None, why, "run nvidia-smi, read dmesg for NVRM lines, then: gpucheck verify --only driver"


def _finding(verdict: Verdict, **fields: object) -> Finding:
    confidence = "certain" if fields.get("cause") else None
    return Finding(check=NAME, verdict=verdict, subject="host", confidence=confidence, **fields)  # type: ignore[arg-type]


CHECK = Check(NAME, frozenset({"software", "quick"}), probe, evaluate)
