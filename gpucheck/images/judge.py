"""Evaluate an image from the inside: its declared versions, and whether GPUs are available. Pure functions."""

from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from gpucheck.checks.host.access import locked_memory
from gpucheck.checks.host.shared_memory import ENOUGH, MIB
from gpucheck.checks.software import driver
from gpucheck.checks.software._wheels import CODE_NAME, PTX_NAME, VERSION, Built, Wheel, code_for_gpus, driver_floor
from gpucheck.images.probe import ImageManifest, Values
from gpucheck.images.selfreport import UNMAPPED, Library
from gpucheck.knowledge.codes import Subject, followed_by
from gpucheck.model import Finding, NvmlFailure, NvmlReading, Verdict
from gpucheck.model.facts import Facts

NAME = "image"
HOST = Subject(check=NAME)
WANTED_ACCESS = "a GPU and its driver"
HIDDEN = ("void", "none", "")


def evaluate_gpus(values: Values) -> Iterator[Finding]:
    """Yield what this container has of a GPU: the findings of the checks, and who keeps a GPU from the container."""
    manifest, nvml = values.manifest, values.facts.nvml
    declared = manifest if isinstance(manifest, ImageManifest) else None
    if declared is not None and declared.cuda is None:
        yield _cpu_image(declared, len(values.facts.gpus))
    elif values.own.device in ("EPERM", "EACCES"):
        yield _closed(values)
    elif isinstance(nvml, NvmlFailure):
        yield from _not_given(values, nvml) or driver.evaluate(values.facts)
    elif not nvml.gpus:
        seen = f"no GPU, driver {nvml.driver_version or 'unknown'}"
        yield HOST.unknown("images.gpus-not-given", seen, WANTED_ACCESS)
    else:
        yield from driver.evaluate(values.facts)
        yield from _fitting(declared, nvml) if declared is not None else ()
        yield from _usable(values, len(nvml.gpus))


def _cpu_image(manifest: ImageManifest, gpus: int) -> Finding:
    if gpus:
        seen = f"{gpus} GPUs, and a CPU build of {manifest.framework}"
        wanted = "a CUDA build on a host with GPUs"
        return HOST.warns("images.cpu-build-on-gpus", seen, wanted, framework=manifest.framework)
    return HOST.with_evidence(f"manifest: a CPU build of {manifest.framework}").passes("no GPU", "no GPU")


def _fitting(manifest: ImageManifest, nvml: NvmlReading) -> Iterator[Finding]:
    """Yield whether driver and GPUs fit the declared build, by the rules of the stack check."""
    if not VERSION.fullmatch(nvml.driver_version or ""):
        seen = f"driver {nvml.driver_version or 'unknown'}"
        yield HOST.unknown("images.driver-version-unknown", seen, WANTED_ACCESS, needed=manifest.driver_floor)
    code, wheel = (
        " ".join(manifest.code),
        Wheel(name=manifest.framework, version=f"{manifest.version}+{manifest.build}"),
    )
    built = Built(
        cuda=manifest.cuda,
        archs=tuple(int(number) for number in CODE_NAME.findall(code)),
        ptx=max((int(number) for number in PTX_NAME.findall(code)), default=None),
        evidence=(f"manifest: CUDA {manifest.cuda}, code {code or 'not stated'}",),
    )
    yield from driver_floor(wheel, built, nvml.driver_version)
    if built.archs:
        for found in code_for_gpus(wheel, built, {gpu.pci_bus_id: gpu.compute_capability for gpu in nvml.gpus}):
            yield followed_by(found, "images.other-variant") if found.verdict is Verdict.FAIL else found


def _usable(values: Values, gpus: int) -> Iterator[Finding]:
    """Yield what CUDA programs need besides NVML: visible GPUs, and the CUDA driver library."""
    hidden, seen = values.facts.environment.get("CUDA_VISIBLE_DEVICES"), f"{gpus} GPUs"
    if hidden is not None and hidden.strip() in ("", "-1", "NoDevFiles"):
        state = f"{seen}; CUDA_VISIBLE_DEVICES={hidden!r} hides all of them"
        yield HOST.warns("images.gpus-hidden-from-cuda", state, WANTED_ACCESS)
    if values.own.driver == "loaded" or values.simulated:
        return
    if values.own.driver is None:
        state = f"{seen}; CUDA driver library unknown: {values.own.error or 'no self-report'}"
        yield HOST.unknown("images.libcuda-unknown", state, WANTED_ACCESS)
        return
    files, subject = values.own.driver_files, HOST.with_evidence(f"dlopen: {values.own.driver}")
    if files:
        folder = files[0].rpartition("/")[0]
        state = f"{seen}; libcuda.so.1 is in {folder} and does not load"
        subject = subject.with_evidence(*subject.evidence, *files)
        yield subject.fails("images.libcuda-not-loading", state, WANTED_ACCESS, directory=folder)
        return
    given = values.facts.environment.get("NVIDIA_DRIVER_CAPABILITIES", "not set")
    state = f"{seen}; libcuda.so.1 does not load"
    yield subject.fails("images.libcuda-missing", state, WANTED_ACCESS, capabilities=given)


def _not_given(values: Values, failure: NvmlFailure) -> tuple[Finding, ...]:
    """Return the finding about a container that got no GPU of a host with a driver; else what failed is the driver."""
    loaded, device = values.facts.driver.loaded_version, values.own.device
    if loaded is None or (device is not None and failure.code != driver.LIBRARY_NOT_FOUND):
        return ()
    subject = HOST.with_evidence(
        f"{failure.call}: {failure.code} {failure.name} {failure.detail}".rstrip(),
        f"/dev/nvidiactl: {device or 'not there'}",
        f"driver loaded on the host: {loaded}",
    )
    if device is not None:
        return (subject.unknown("images.libraries-not-given", "device files without libraries", WANTED_ACCESS),)
    # With device files the variable hides nothing: a CDI specification sets it to "void" itself.
    visible = values.facts.environment.get("NVIDIA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in HIDDEN:
        seen = f"no GPU: NVIDIA_VISIBLE_DEVICES={visible!r} hides them"
        return (subject.unknown("images.gpus-not-requested", seen, WANTED_ACCESS, driver=loaded),)
    seen = "no GPU in this container"
    return (subject.unknown("images.started-without-gpus", seen, WANTED_ACCESS, driver=loaded),)


def _closed(values: Values) -> Finding:
    """Evaluate a control device that does not open: EPERM is from the device cgroup, EACCES from mode or SELinux."""
    rights = values.own.rights
    seen = f"/dev/nvidiactl is there and cannot be opened: {values.own.device}"
    if values.own.device == "EPERM":
        return HOST.fails("images.device-denied-by-cgroup", seen, WANTED_ACCESS)
    seen, subject = f"{seen}, no access", HOST.with_evidence(f"/dev/nvidiactl: {rights}") if rights else HOST
    if rights is not None and rights.allow:
        return subject.fails("images.device-denied-by-policy", seen, WANTED_ACCESS)
    # A group outside the ids of the user namespace is unknown: only groups of the host help.
    if rights is None or rights.gid == UNMAPPED:
        return subject.fails("images.device-denied-by-unknown-group", seen, WANTED_ACCESS)
    return subject.fails("images.device-denied-by-mode", seen, WANTED_ACCESS, group=rights.gid)


WANTED = "RDMA devices, libibverbs and unlimited locked memory"


def evaluate_network(values: Values) -> Iterator[Finding]:
    """Yield at most one finding; none without an RDMA device on the host or in the container, or without NCCL."""
    manifest, own = values.manifest, values.own
    if not isinstance(manifest, ImageManifest) or manifest.cuda is None or values.simulated or own.error is not None:
        return
    on_host = " ".join(name for device in values.facts.pci for name in device.infiniband_names)
    if not own.rdma and on_host:
        seen = f"the host has {on_host}, this container no /dev/infiniband"
        yield HOST.skips("images.rdma-not-given", seen, WANTED)
    elif own.rdma and own.verbs != "loaded":
        seen = f"{len(own.rdma)} RDMA devices: {' '.join(own.rdma)}; libibverbs.so.1 does not load"
        yield HOST.with_evidence(f"dlopen: {own.verbs}").warns("images.verbs-missing", seen, WANTED)
    elif own.rdma:
        yield from locked_memory(values.facts)


PARTS = {"cuda": "CUDA runtime", "cudnn": "cuDNN", "nccl": "NCCL"}
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a name in a message
# Podman's default, 64000 KiB; Docker's is 64 MiB.
DEFAULT_SHM = 64000 * 2**10


def evaluate(values: Values, *, quick: bool) -> Iterator[Finding]:
    """Yield all findings. quick: only what can change while a container runs."""
    if not quick:
        yield from _framework(values)
        yield from _libraries(values)
        yield from _search_path(values)
        yield from _full(values)
    yield from evaluate_gpus(values)
    yield _shm(values.facts)
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
    subject = HOST.with_evidence(f"LD_LIBRARY_PATH={values.facts.environment.get('LD_LIBRARY_PATH', '')}")
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


def _shm(facts: Facts) -> Finding:
    size = facts.limits.shm_bytes
    seen = f"no {SHARED_MEMORY}" if size is None else f"{SHARED_MEMORY} {size / MIB:.0f} MiB"
    wanted = f"{ENOUGH // MIB} MiB or more for several ranks"
    if size is not None and size >= ENOUGH:
        return HOST.passes(seen, wanted)
    if size is not None and size >= DEFAULT_SHM and len(facts.gpus) < 2:
        return HOST.skips("images.shm-enough-alone", seen, wanted)
    return HOST.warns("images.shm-too-small", seen, wanted)
