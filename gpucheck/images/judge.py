"""Evaluate an image from the inside: its declared versions, and whether GPUs are available. Pure functions."""

from collections.abc import Iterator

from msgspec.structs import replace
from packaging.version import InvalidVersion, Version

from gpucheck.checks.host.access import ENOUGH_MIB, UNLIMITED
from gpucheck.checks.software import driver
from gpucheck.images.probe import UNMAPPED, ImageManifest, Library, Values
from gpucheck.knowledge import code_runs
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding, NvmlFailure, NvmlReading, Verdict

NAME = "image"
HOST = Subject(check=NAME)
WANTED_ACCESS = "a GPU and its driver"
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
    names = [gpu.name or "GPU" for gpu in nvml.gpus]
    count = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names)) or "no GPU"
    seen = f"{count}, driver {nvml.driver_version or 'unknown'}"
    hidden = values.environment.get("CUDA_VISIBLE_DEVICES")
    floor = manifest.driver_floor if manifest else None
    if values.own.device in ("EPERM", "EACCES"):
        return _closed(values)
    if not names:
        return HOST.unknown("images.gpus-not-given", seen, WANTED_ACCESS)
    older = _older(nvml.driver_version, floor) if floor else False
    if older is None:
        return HOST.unknown("images.driver-version-unknown", seen, WANTED_ACCESS, needed=floor)
    if older:
        cuda = manifest.cuda if manifest else None
        return HOST.fails("images.driver-too-old", seen, f"driver {floor} or newer", cuda=cuda)
    if hidden is not None and hidden.strip() in ("", "-1", "NoDevFiles"):
        state = f"{seen}; CUDA_VISIBLE_DEVICES={hidden!r} hides all of them"
        return HOST.warns("images.gpus-hidden-from-cuda", state, WANTED_ACCESS)
    if values.own.driver != "loaded" and not values.simulated:
        return _no_libcuda(values, seen)
    return HOST.with_evidence(f"nvmlSystemGetDriverVersion: {nvml.driver_version}").passes(seen, WANTED_ACCESS)


def _no_libcuda(values: Values, seen: str) -> Finding:
    if values.own.driver is None:
        state = f"{seen}; CUDA driver library unknown: {values.own.error or 'no self-report'}"
        return HOST.unknown("images.libcuda-unknown", state, WANTED_ACCESS)
    files, dlopen = values.own.driver_files, f"dlopen: {values.own.driver}"
    if files:
        directory, subject = files[0].rpartition("/")[0], HOST.with_evidence(dlopen, *files)
        state = f"{seen}; libcuda.so.1 is in {directory} and does not load"
        return subject.fails("images.libcuda-not-loading", state, WANTED_ACCESS, directory=directory)
    given, state = values.environment.get("NVIDIA_DRIVER_CAPABILITIES"), f"{seen}; libcuda.so.1 does not load"
    return HOST.with_evidence(dlopen).fails(
        "images.libcuda-missing", state, WANTED_ACCESS, capabilities=given or "not set"
    )


def _code(nvml: NvmlReading, manifest: ImageManifest | None) -> Iterator[Finding]:
    """Yield findings about GPUs without machine code in this build; newer GPUs use the PTX of the newest."""
    archs = tuple(int(name.partition("_")[2]) for name in manifest.code) if manifest else ()
    if manifest is None or not archs:
        return
    ptx = max((int(name[8:]) for name in manifest.code if name.startswith("compute_")), default=None)
    for gpu in nvml.gpus:
        capability, wanted = gpu.compute_capability, f"one of {' '.join(manifest.code)}"
        subject = Subject(check=NAME, name=f"gpu:{gpu.pci_bus_id}")
        if capability is None:
            yield subject.unknown("images.gpu-code-unknown", f"{gpu.name}, compute capability not reported", wanted)
        elif not code_runs(capability, archs) and not (
            ptx and Version(f"{ptx // 10}.{ptx % 10}") < Version(capability) < Version("10.0")
        ):
            seen, build = f"{gpu.name}, compute capability {capability}", manifest.build
            names = {"framework": manifest.framework, "version": manifest.version, "build": build}
            yield subject.fails("images.gpu-code-missing", seen, wanted, **names)


def _unseen(values: Values, failure: NvmlFailure) -> Finding:
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
        return host.unknown("images.gpus-not-requested", seen, WANTED_ACCESS, driver=loaded)
    if failure.code == MISMATCH:
        return host.fails("images.libraries-mismatch", failure.name, WANTED_ACCESS)
    if values.own.device == "open" and failure.code == LIBRARY_NOT_FOUND:
        return host.unknown("images.libraries-not-given", "device files without libraries", WANTED_ACCESS)
    if loaded and values.own.device is None:
        return host.unknown("images.started-without-gpus", "no GPU in this container", WANTED_ACCESS, driver=loaded)
    if loaded or failure.code < 0:
        return _not_available(values, failure, host.evidence)
    if values.gpus_on_pci:
        cause = "nouveau-loaded" if values.driver.nouveau_loaded else "driver-not-loaded"
        seen = f"{values.gpus_on_pci} GPUs on the PCI bus, no driver"
        return host.fails("images.module-not-loaded", seen, WANTED_ACCESS, cause=cause)
    return host.unknown("images.host-without-gpu", "no GPU in this machine, no driver", WANTED_ACCESS)


def _not_available(values: Values, failure: NvmlFailure, evidence: tuple[str, ...]) -> Finding:
    """Return the finding of the driver check as one of this check: only some failures are caused by the driver."""
    found = driver.meaning(failure, values.driver, values.container or "unnamed")
    seen = f"NVML not available: {failure.call}: {failure.name}"
    found = replace(found, check=NAME, seen=seen, wanted=WANTED_ACCESS, evidence=evidence)
    # Without a cause on the host, the remedy is another start of the container.
    without = found.verdict is Verdict.FAIL and found.cause is None
    return replace(found, action="change-setting", owner="user") if without else found


def _closed(values: Values, evidence: tuple[str, ...] = ()) -> Finding:
    """Evaluate a control device that does not open: EPERM is from the device cgroup, EACCES from mode or SELinux."""
    rights = values.own.rights
    seen = f"/dev/nvidiactl is there and cannot be opened: {values.own.device}"
    if values.own.device == "EPERM":
        return HOST.with_evidence(*evidence).fails("images.device-denied-by-cgroup", seen, WANTED_ACCESS)
    seen, more = f"{seen}, no access", (f"/dev/nvidiactl: {rights}",) if rights else ()
    subject = HOST.with_evidence(*evidence, *more)
    if rights is not None and rights.allow:
        return subject.fails("images.device-denied-by-policy", seen, WANTED_ACCESS)
    # A group outside the ids of the user namespace is unknown: only groups of the host help.
    if rights is None or rights.gid == UNMAPPED:
        return subject.fails("images.device-denied-by-unknown-group", seen, WANTED_ACCESS)
    return subject.fails("images.device-denied-by-mode", seen, WANTED_ACCESS, group=rights.gid)


def _older(version: str | None, floor: str) -> bool | None:
    """Return whether a driver is older than the minimum; None if its version is unknown or not understood."""
    try:
        return Version(version or "") < Version(floor)
    except InvalidVersion:
        return None


WANTED = "RDMA devices, libibverbs and unlimited locked memory"


def evaluate_network(values: Values) -> Iterator[Finding]:
    """Yield at most one finding; none without an RDMA device on the host or in the container, or without NCCL."""
    if not isinstance(values.manifest, ImageManifest) or values.manifest.cuda is None or values.simulated:
        return
    own, limit = values.own, values.memlock_bytes
    devices = f"{len(own.rdma)} RDMA devices: {' '.join(own.rdma)}"
    if own.error is not None:
        return
    if not own.rdma:
        if values.rdma_on_host:
            seen = f"the host has {' '.join(values.rdma_on_host)}, this container no /dev/infiniband"
            yield HOST.skips("images.rdma-not-given", seen, WANTED)
    elif own.verbs != "loaded":
        subject, seen = HOST.with_evidence(f"dlopen: {own.verbs}"), f"{devices}; libibverbs.so.1 does not load"
        yield subject.warns("images.verbs-missing", seen, WANTED)
    elif limit is None:
        seen = f"{devices}; locked memory limit unknown: RLIMIT_MEMLOCK cannot be read"
        yield HOST.unknown("images.memlock-unknown", seen, WANTED)
    elif limit != UNLIMITED and limit >> 20 < ENOUGH_MIB:
        seen = f"{devices}; locked memory limit {limit >> 10} KiB"
        yield HOST.warns("images.memlock-too-small", seen, WANTED)
    else:
        locked = "not limited" if limit == UNLIMITED else f"limit {limit >> 30} GiB"
        yield HOST.passes(f"{devices}, libibverbs loads, locked memory {locked}", WANTED)


PARTS = {"cuda": "CUDA runtime", "cudnn": "cuDNN", "nccl": "NCCL"}
MIB = 2**20
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a name in a message
# Podman's default, 64000 KiB; Docker's is 64 MiB.
DEFAULT_SHM = 64000 * 2**10
ROOMY_SHM = 1024 * MIB


def evaluate(values: Values, *, quick: bool) -> Iterator[Finding]:
    """Yield all findings. quick: only what can change while a container runs."""
    if not quick:
        yield from _framework(values)
        yield from _libraries(values)
        yield from _search_path(values)
        yield from _full(values)
    yield from evaluate_driver(values)
    yield _shm(values)
    if not quick:
        yield from evaluate_network(values)


def _framework(values: Values) -> Iterator[Finding]:
    manifest = values.manifest
    have = {wheel.name: wheel.version for wheel in values.wheels}
    if isinstance(manifest, str):
        yield HOST.unknown("images.manifest-unreadable", manifest, "the image's manifest")
        return
    if manifest is None:
        names = ", ".join(f"{name} {version}" for name, version in have.items()) or "no framework"
        yield HOST.skips("images.manifest-absent", names, "a gpucheck image")
        return
    framework, seen = manifest.framework, have.get(manifest.framework)
    wanted = f"{framework} {manifest.version} ({manifest.build})"
    built = f", built for CUDA {manifest.built_for}" if manifest.built_for else ""
    version, _, build = (seen or "").partition("+")
    # Wheels of PyPI name no build.
    if _same(version, manifest.version) and build in ("", manifest.build):
        yield HOST.passes(f"{framework} {seen}{built}", wanted)
        return
    state = f"{framework} {seen or 'not installed'}"
    yield HOST.fails("images.framework-changed", state, wanted, framework=framework)


def _libraries(values: Values) -> Iterator[Finding]:
    manifest, own = values.manifest, values.own
    if not isinstance(manifest, ImageManifest):
        return
    if own.error is not None:
        seen = f"self-report of the CUDA libraries: {own.error}"
        yield HOST.unknown("images.selfreport-failed", seen, "a result")
        return
    for part, words in PARTS.items():
        wanted = getattr(manifest, part)
        found = own.libraries.get(part)
        if wanted is None and found is None:
            continue
        yield _library(words, part, wanted, found)


def _library(words: str, part: str, wanted: str | None, found: Library | None) -> Finding:
    """Evaluate one CUDA library: declared, present, only once, and at the declared version as it reports itself."""
    paths = found.paths if found else ()
    expected = f"{words} {wanted}" if wanted else f"no {words}"
    if found is None:
        code, seen = "images.library-missing", "missing"
    elif found.error is not None:
        code, seen = "images.library-not-loading", found.error
    elif len(paths) > 1:
        code, seen = "images.library-copies", f"{len(paths)} copies"
    elif wanted is None or not _same(found.version or "", wanted, parts=2 if part == "cuda" else 3):
        code, seen = "images.library-version-differs", str(found.version)
    else:
        return HOST.with_evidence(*paths).passes(f"{words} {found.version}, as the library reports", expected)
    return HOST.with_evidence(*paths).fails(code, f"{words}: {seen}", expected, library=words)


def _same(one: str, other: str, parts: int = 3) -> bool:
    """Return whether releases are equal in the numbers of the library; the fourth of cuDNN is its package's."""
    try:
        return Version(one).release[:parts] == Version(other).release[:parts]
    except InvalidVersion:
        return False


def _search_path(values: Values) -> Iterator[Finding]:
    """Report directories with libraries that the wheels also include; other directories are for the driver."""
    subject = HOST.with_evidence(f"LD_LIBRARY_PATH={values.environment.get('LD_LIBRARY_PATH', '')}")
    for folder, names in values.own.shadowing.items():
        seen = f"LD_LIBRARY_PATH contains {folder} with {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}"
        wanted = "no CUDA library in the directories of LD_LIBRARY_PATH"
        yield subject.warns("images.search-path-shadows", seen, wanted, directory=folder)


def _full(values: Values) -> Iterator[Finding]:
    """Compare the imported framework with the declared versions; published TensorFlow images failed here."""
    manifest, reported = values.manifest, values.full
    if reported is None or not isinstance(manifest, ImageManifest):
        return
    framework = manifest.framework
    if "unknown" in reported:
        yield HOST.unknown("images.import-unknown", f"import {framework} unknown: {reported['unknown']}", "it imports")
        return
    if "error" in reported:
        seen = f"import {framework}: {reported['error']}"
        yield HOST.fails("images.import-failed", seen, "it imports", framework=framework)
        return
    wrong = [
        f"{key} {reported.get(key)}, declared {want}"
        for key, want in _wanted(manifest)
        if not _agrees(reported.get(key), want)
    ]
    seen = ", ".join(f"{key} {reported[key]}" for key in ("version", "cuda", "cudnn", "nccl") if reported.get(key))
    if not wrong:
        yield HOST.passes(f"{framework} reports {seen}", "as declared")
        return
    yield HOST.fails("images.framework-built-otherwise", f"{framework} reports {'; '.join(wrong)}", "as declared")


def _wanted(manifest: ImageManifest) -> Iterator[tuple[str, str]]:
    yield "version", manifest.version
    if manifest.cuda is None:
        return
    pairs = (("cuda", manifest.built_for), ("cudnn", manifest.cudnn), ("nccl", manifest.nccl))
    # TensorFlow reports the minor of CUDA and only the major of cuDNN, and links NCCL without a version.
    yield from ((key, want) for key, want in pairs if want and (key != "nccl" or manifest.framework == "torch"))


def _agrees(reported: object, want: str) -> bool:
    """Return whether the shorter version is a prefix of the other: TensorFlow's ``9`` matches cuDNN 9.10.2."""
    if reported is None:
        return False
    try:
        one, other = Version(str(reported)).release, Version(want).release
    except InvalidVersion:
        return False
    shared = min(len(one), len(other), 3)
    return one[:shared] == other[:shared]


def _shm(values: Values) -> Finding:
    size = values.shm_bytes
    gpus = len(values.nvml.gpus) if isinstance(values.nvml, NvmlReading) else 0
    seen = f"no {SHARED_MEMORY}" if size is None else f"{SHARED_MEMORY} {size / MIB:.0f} MiB"
    wanted = f"{ROOMY_SHM / MIB:.0f} MiB or more for several ranks"
    if size is not None and size >= ROOMY_SHM:
        return HOST.passes(seen, wanted)
    if size is not None and size >= DEFAULT_SHM and gpus < 2:
        return HOST.skips("images.shm-enough-alone", seen, wanted)
    return HOST.warns("images.shm-too-small", seen, wanted)
