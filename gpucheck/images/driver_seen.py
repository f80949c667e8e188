"""Evaluate whether a GPU is available in this container; if not, find the cause and the fix. Pure functions."""

from msgspec.structs import replace
from packaging.version import InvalidVersion, Version

from gpucheck.checks.software import driver
from gpucheck.images.probe import UNMAPPED, ImageManifest, Values
from gpucheck.knowledge import code_runs
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, NvmlFailure, NvmlReading, Verdict

NAME = "image"
HOST = Subject(check=NAME)
WANTED = "a GPU and its driver"
LIBRARY_NOT_FOUND, MISMATCH = 12, 18
HIDDEN = ("void", "none", "")


def evaluate_driver(values: Values) -> tuple[Finding, ...]:
    """Return the finding about driver and GPUs, and one for GPUs that this build has no code for."""
    manifest = values.manifest if isinstance(values.manifest, ImageManifest) else None
    if manifest is not None and manifest.cuda is None:
        return (_cpu_image(values, manifest),)
    if isinstance(values.nvml, NvmlFailure):
        return (_unseen(values, values.nvml),)
    return (_seen(values, values.nvml, manifest), *_code(values.nvml, manifest))


def _cpu_image(values: Values, manifest: ImageManifest) -> Finding:
    gpus = len(values.nvml.gpus) if isinstance(values.nvml, NvmlReading) else 0
    if gpus:
        seen = f"{gpus} GPUs, and a CPU build of {manifest.framework}"
        wanted = "a CUDA build on a host with GPUs"
        return HOST.warns("images.cpu-build-on-gpus", seen, wanted, framework=manifest.framework)
    return HOST.with_evidence(f"manifest: a CPU build of {manifest.framework}").passes("no GPU", "no GPU")


def _seen(values: Values, nvml: NvmlReading, manifest: ImageManifest | None) -> Finding:
    """Evaluate whether the GPUs that NVML reports are usable."""
    names = [gpu.name or "GPU" for gpu in nvml.gpus]
    count = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or "no GPU"
    seen = f"{count}, driver {nvml.driver_version or 'unknown'}"
    hidden = values.environment.get("CUDA_VISIBLE_DEVICES")
    floor = manifest.driver_floor if manifest else None
    if values.own.device in ("EPERM", "EACCES"):
        return _closed(values)
    if not names:
        return HOST.unknown("images.gpus-not-given", seen, WANTED)
    if floor and nvml.driver_version is None:
        return HOST.unknown("images.driver-version-unknown", seen, WANTED, needed=floor)
    if floor and nvml.driver_version and _older(nvml.driver_version, floor):
        cuda = manifest.cuda if manifest else None
        return HOST.fails("images.driver-too-old", seen, f"driver {floor} or newer", cuda=cuda)
    if hidden is not None and hidden.strip() in ("", "-1", "NoDevFiles"):
        state = f"{seen}; CUDA_VISIBLE_DEVICES={hidden!r} hides all of them"
        return HOST.warns("images.gpus-hidden-from-cuda", state, WANTED)
    if values.own.driver != "loaded" and not values.simulated:
        return _no_libcuda(values, seen)
    return HOST.with_evidence(f"nvmlSystemGetDriverVersion: {nvml.driver_version}").passes(seen, WANTED)


def _no_libcuda(values: Values, seen: str) -> Finding:
    if values.own.driver is None:
        state = f"{seen}; CUDA driver library unknown: {values.own.error or 'no self-report'}"
        return HOST.unknown("images.libcuda-unknown", state, WANTED)
    files, dlopen = values.own.driver_files, f"dlopen: {values.own.driver}"
    if files:
        directory, subject = files[0].rpartition("/")[0], HOST.with_evidence(dlopen, *files)
        state = f"{seen}; libcuda.so.1 is in {directory} and does not load"
        return subject.fails("images.libcuda-not-loading", state, WANTED, directory=directory)
    given, state = values.environment.get("NVIDIA_DRIVER_CAPABILITIES"), f"{seen}; libcuda.so.1 does not load"
    return HOST.with_evidence(dlopen).fails("images.libcuda-missing", state, WANTED, capabilities=given or "not set")


def _code(nvml: NvmlReading, manifest: ImageManifest | None) -> tuple[Finding, ...]:
    """Return findings about GPUs without machine code in this build; newer GPUs use the PTX of the newest."""
    archs = tuple(int(name.partition("_")[2]) for name in manifest.code) if manifest else ()
    if manifest is None or not archs:
        return ()
    ptx = max((int(name[8:]) for name in manifest.code if name.startswith("compute_")), default=None)
    without = [
        gpu
        for gpu in nvml.gpus
        if gpu.compute_capability is not None
        and not code_runs(gpu.compute_capability, archs)
        and not (ptx and Version(f"{ptx // 10}.{ptx % 10}") < Version(gpu.compute_capability) < Version("10.0"))
    ]
    return tuple(
        Subject(check=NAME, name=f"gpu:{gpu.pci_bus_id}").fails(
            "images.gpu-code-missing",
            f"{gpu.name}, compute capability {gpu.compute_capability}",
            f"one of {' '.join(manifest.code)}",
            framework=manifest.framework,
            version=manifest.version,
            build=manifest.build,
        )
        for gpu in without
    )


def _unseen(values: Values, failure: NvmlFailure) -> Finding:
    """Find why NVML does not respond in this container."""
    visible, loaded = values.environment.get("NVIDIA_VISIBLE_DEVICES"), values.driver.loaded_version
    host = HOST.with_evidence(
        f"{failure.call}: {failure.code} {failure.name} {failure.detail}".rstrip(),
        f"/dev/nvidiactl: {values.own.device or 'not there'}",
        f"driver loaded on the host: {loaded or 'none'}",
        f"NVIDIA GPUs on the PCI bus: {values.gpus_on_pci}",
    )
    if values.own.device in ("EPERM", "EACCES"):
        return _closed(values, host.evidence)
    # With device files the variable hides nothing: a CDI specification sets it to "void" itself.
    hidden = visible is not None and visible.strip() in HIDDEN and values.own.device is None
    if hidden and loaded:
        seen = f"no GPU: NVIDIA_VISIBLE_DEVICES={visible!r} hides them"
        return host.unknown("images.gpus-not-requested", seen, WANTED, driver=loaded)
    if failure.code == MISMATCH:
        return host.fails("images.libraries-mismatch", failure.name, WANTED)
    if values.own.device == "open" and failure.code == LIBRARY_NOT_FOUND:
        return host.unknown("images.libraries-not-given", "device files without libraries", WANTED)
    if loaded and values.own.device is None:
        return host.unknown("images.started-without-gpus", "no GPU in this container", WANTED, driver=loaded)
    if loaded or failure.code < 0:
        return _not_available(values, failure, host.evidence)
    if values.gpus_on_pci:
        cause = "nouveau-loaded" if values.driver.nouveau_loaded else "driver-not-loaded"
        seen = f"{values.gpus_on_pci} GPUs on the PCI bus, no driver"
        return host.fails("images.module-not-loaded", seen, WANTED, cause=cause)
    return host.unknown("images.host-without-gpu", "no GPU in this machine, no driver", WANTED)


def _not_available(values: Values, failure: NvmlFailure, evidence: tuple[str, ...]) -> Finding:
    """Return the finding of the driver check as one of this check: only some failures are caused by the driver."""
    found = driver.meaning(failure, values.driver, values.container or "unnamed")
    seen = f"NVML not available: {failure.call}: {failure.name}"
    found = replace(found, check=NAME, seen=seen, wanted=WANTED, evidence=evidence)
    # Without a cause on the host, the remedy is another start of the container.
    without = found.verdict is Verdict.FAIL and found.cause is None
    return replace(found, action="change-setting", owner="user") if without else found


def _closed(values: Values, evidence: tuple[str, ...] = ()) -> Finding:
    """Evaluate a control device that does not open: EPERM is from the device cgroup, EACCES from mode or SELinux."""
    rights = values.own.rights
    seen = f"/dev/nvidiactl is there and cannot be opened: {values.own.device}"
    if values.own.device == "EPERM":
        return HOST.with_evidence(*evidence).fails("images.device-denied-by-cgroup", seen, WANTED)
    seen, more = f"{seen}, no access", (f"/dev/nvidiactl: {rights}",) if rights else ()
    subject = HOST.with_evidence(*evidence, *more)
    if rights is not None and rights.allow:
        return subject.fails("images.device-denied-by-policy", seen, WANTED)
    # A group outside the ids of the user namespace is unknown: only groups of the host help.
    if rights is None or rights.gid == UNMAPPED:
        return subject.fails("images.device-denied-by-unknown-group", seen, WANTED)
    return subject.fails("images.device-denied-by-mode", seen, WANTED, group=rights.gid)


def _older(version: str, floor: str) -> bool:
    try:
        return Version(version) < Version(floor)
    except InvalidVersion:
        return False
