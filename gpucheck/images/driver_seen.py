"""Evaluate whether a GPU is available in this container; if not, find the cause and the fix. Pure functions."""

from typing import Any

from packaging.version import InvalidVersion, Version

from gpucheck.checks.software import driver
from gpucheck.images.probe import UNMAPPED, ImageManifest, Values
from gpucheck.knowledge import code_runs
from gpucheck.model import Finding, NvmlFailure, NvmlReading, Verdict

NAME = "image"


def finding(verdict: Verdict, seen: str, wanted: str, **more: Any) -> Finding:
    """Return a finding of this check. A cause is certain unless stated otherwise, as it was observed directly.

    Without a cause on the host, the remedy is another image or another start of the container.
    """
    subject = more.pop("subject", "host")
    confidence = more.pop("confidence", "certain")
    if verdict in (Verdict.WARN, Verdict.FAIL) and not more.get("cause"):
        more = {"action": "change-setting", "owner": "user", **more}
    return Finding(
        check=NAME,
        verdict=verdict,
        subject=subject,
        seen=seen,
        wanted=wanted,
        confidence=confidence if more.get("cause") else None,
        **more,
    )


WANTED = "a GPU and its driver"
GIVE = "docker run --gpus all, podman run --device nvidia.com/gpu=all, or nvidia.com/gpu in the pod's limits"
TOOLKIT = (
    f"start it with GPUs ({GIVE}); if the engine then finds no GPUs, it lacks NVIDIA's container toolkit: "
    "make provision INVENTORY=... installs it on the host"
)
RESTART = (
    "restart the container; permanently: start containers through CDI, or allow the devices in runc's cgroups "
    "(docs/images.md: Run with GPUs)"
)
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


def _finding(verdict: Verdict, seen: str, **more: Any) -> Finding:
    return finding(verdict, seen, more.pop("wanted", WANTED), **more)


def _cpu_image(values: Values, manifest: ImageManifest) -> Finding:
    gpus = len(values.nvml.gpus) if isinstance(values.nvml, NvmlReading) else 0
    if gpus:
        return _finding(
            Verdict.WARN,
            f"{gpus} GPUs, and a CPU build of {manifest.framework}",
            wanted="a CUDA build on a host with GPUs",
            why="a CPU build uses no GPU, whatever the container is given",
            fix=f"run a CUDA variant of the {manifest.framework} image (docs/images.md has the table)",
        )
    why = f"a CPU build of {manifest.framework} uses no GPU, so GPUs are not checked"
    return _finding(Verdict.PASS, "no GPU", wanted="no GPU", why=why)


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
        return _finding(
            Verdict.UNKNOWN,
            seen,
            why="the driver responds and reports no GPU to this container",
            fix=f"start it with {GIVE}",
        )
    if floor and nvml.driver_version is None:
        why = f"driver version unknown: NVML did not report it, and CUDA of this image needs driver {floor} or newer"
        return _finding(Verdict.UNKNOWN, seen, why=why, fix="nvidia-smi on the host")
    if floor and nvml.driver_version and _older(nvml.driver_version, floor):
        return _finding(
            Verdict.FAIL,
            seen,
            wanted=f"driver {floor} or newer",
            cause="library-mismatch",
            why=f"the host's driver is older than what CUDA {manifest.cuda if manifest else ''} of this image runs on",
            fix="install a newer driver on the host, or run a variant with an older CUDA: docs/images.md has the table",
        )
    if hidden is not None and hidden.strip() in ("", "-1", "NoDevFiles"):
        return _finding(
            Verdict.WARN,
            f"{seen}; CUDA_VISIBLE_DEVICES={hidden!r} hides all of them",
            cause="leftover-environment",
            why="CUDA programs see only the GPUs that CUDA_VISIBLE_DEVICES names",
            fix="start the container without CUDA_VISIBLE_DEVICES",
        )
    if values.own.driver != "loaded" and not values.simulated:
        return _no_libcuda(values, seen)
    return _finding(Verdict.PASS, seen, evidence=(f"nvmlSystemGetDriverVersion: {nvml.driver_version}",))


def _no_libcuda(values: Values, seen: str) -> Finding:
    if values.own.driver is None:
        return _finding(
            Verdict.UNKNOWN,
            f"{seen}; CUDA driver library unknown: {values.own.error or 'no self-report'}",
            why="the process that loads libcuda.so.1 ended or hung",
            fix="python -m gpucheck.images.selfreport --quick shows the whole error",
        )
    files = values.own.driver_files
    if files:
        return _finding(
            Verdict.FAIL,
            f"{seen}; libcuda.so.1 is in {files[0].rpartition('/')[0]} and does not load",
            why="the loader does not search this directory, or rejects the library",
            fix=f'export LD_LIBRARY_PATH="{files[0].rpartition("/")[0]}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}", or '
            "docker run -e LD_LIBRARY_PATH=...",
            evidence=(f"dlopen: {values.own.driver}", *files),
        )
    capabilities = values.environment.get("NVIDIA_DRIVER_CAPABILITIES", "not set")
    return _finding(
        Verdict.FAIL,
        f"{seen}; libcuda.so.1 does not load",
        why=f"the container got NVML and no CUDA driver (NVIDIA_DRIVER_CAPABILITIES={capabilities}), or the loader "
        "does not search its directory",
        fix="start it with -e NVIDIA_DRIVER_CAPABILITIES=compute,utility; if the library is mounted in a separate "
        "directory, add that directory to LD_LIBRARY_PATH",
        evidence=(f"dlopen: {values.own.driver}",),
    )


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
        _finding(
            Verdict.FAIL,
            f"{gpu.name}, compute capability {gpu.compute_capability}",
            subject=f"gpu:{gpu.pci_bus_id}",
            wanted=f"one of {' '.join(manifest.code)}",
            cause="arch-not-in-build",
            why=f"{manifest.framework} {manifest.version} ({manifest.build}) has no code for it: 'no kernel image'",
            fix="run the variant that serves this GPU's generation: docs/images.md has the table (Pascal: torch-cu126)",
        )
        for gpu in without
    )


def _unseen(values: Values, failure: NvmlFailure) -> Finding:
    """Find why NVML does not respond in this container."""
    visible = values.environment.get("NVIDIA_VISIBLE_DEVICES")
    evidence = (
        f"{failure.call}: {failure.code} {failure.name} {failure.detail}".rstrip(),
        f"/dev/nvidiactl: {values.own.device or 'not there'}",
        f"driver loaded on the host: {values.driver.loaded_version or 'none'}",
        f"NVIDIA GPUs on the PCI bus: {values.gpus_on_pci}",
    )
    host = f"the host has driver {values.driver.loaded_version}"
    if values.own.device in ("EPERM", "EACCES"):
        return _closed(values, evidence)
    # With device files the variable hides nothing: a CDI specification sets it to "void" itself.
    hidden = visible is not None and visible.strip() in HIDDEN and values.own.device is None
    if hidden and values.driver.loaded_version:
        return _finding(
            Verdict.UNKNOWN,
            f"no GPU: NVIDIA_VISIBLE_DEVICES={visible!r} hides them",
            cause="leftover-environment",
            why=f"{host}, and the container requests none of its GPUs",
            fix="start the container without setting NVIDIA_VISIBLE_DEVICES; the image requests all",
            evidence=evidence,
        )
    if failure.code == MISMATCH:
        why = "the driver's libraries in the container are not of the loaded kernel module's version"
        fix = "the host's driver was upgraded without a reboot: reboot the host, then start the container again"
        return _finding(Verdict.FAIL, failure.name, cause="driver-mismatch", why=why, fix=fix, evidence=evidence)
    if values.own.device == "open" and failure.code == LIBRARY_NOT_FOUND:
        why = "the container has the device files and not the driver's libraries: it was started with --device alone"
        return _finding(Verdict.UNKNOWN, "device files without libraries", why=why, fix=TOOLKIT, evidence=evidence)
    if values.driver.loaded_version and values.own.device is None:
        why = f"{host}, and this container has no GPU: it was started without GPUs, or the toolkit is missing"
        return _finding(Verdict.UNKNOWN, "no GPU in this container", why=why, fix=TOOLKIT, evidence=evidence)
    if values.driver.loaded_version or failure.code < 0:
        return _not_available(values, failure, evidence)
    if values.gpus_on_pci:
        return _finding(
            Verdict.FAIL,
            f"{values.gpus_on_pci} GPUs on the PCI bus, no driver",
            cause="nouveau-loaded" if values.driver.nouveau_loaded else "driver-not-loaded",
            why="the host has no NVIDIA kernel module loaded; an image cannot include one",
            fix="install the driver on the host: make provision INVENTORY=...",
            evidence=evidence,
        )
    return _finding(
        Verdict.UNKNOWN,
        "no GPU in this machine, no driver",
        why="the host has no NVIDIA GPU and no driver, so only checks that need neither were run",
        fix="run the image on a GPU host, or use a CPU variant here",
        evidence=evidence,
    )


def _not_available(values: Values, failure: NvmlFailure, evidence: tuple[str, ...]) -> Finding:
    """Return the verdict of the driver check: only some failures are caused by the driver."""
    means = driver.meaning(failure, values.driver, values.container or "unnamed")
    return _finding(
        means.verdict,
        f"NVML not available: {failure.call}: {failure.name}",
        cause=means.cause,
        confidence=means.confidence,
        why=means.why,
        fix=means.fix,
        evidence=evidence,
    )


def _closed(values: Values, evidence: tuple[str, ...] = ()) -> Finding:
    """Evaluate a control device that does not open: EPERM is from the device cgroup, EACCES from mode or SELinux."""
    rights = values.own.rights
    seen = f"/dev/nvidiactl is there and cannot be opened: {values.own.device}"
    if values.own.device == "EPERM":
        return _finding(
            Verdict.FAIL,
            seen,
            cause="gpu-lost",
            confidence="likely",
            why="the device cgroup denies it: the container lost its GPUs since it started (systemctl daemon-reload on "
            "the host rewrites device rights), or it got the files as a volume (-v /dev:/dev) and not as devices",
            fix=RESTART,
            evidence=evidence,
        )
    # A group outside the ids of the user namespace is unknown: only groups of the host help.
    known = rights is not None and rights.gid != UNMAPPED
    group = f"docker run --group-add {rights.gid if rights and known else 'GROUP (that of the device on the host)'}"
    if rights is not None and rights.allow:
        why = "the file's mode allows it, so a security module (SELinux, AppArmor) does not"
        fix = (
            "podman run (or docker run) --security-opt label=disable, or on the host: setsebool -P "
            "container_use_devices on"
        )
    else:
        why = "this user has no access to the device file; the GPUs themselves are there"
        fix = (
            f"{group}; podman run --group-add keep-groups; Kubernetes: supplementalGroups in the pod's "
            "securityContext; or on the host: module option NVreg_DeviceFileMode=0666 of nvidia, which opens it to all"
        )
    more = (f"/dev/nvidiactl: {rights}",) if rights else ()
    return _finding(Verdict.FAIL, f"{seen}, no access", why=why, fix=fix, evidence=(*evidence, *more))


def _older(version: str, floor: str) -> bool:
    try:
        return Version(version) < Version(floor)
    except InvalidVersion:
        return False
