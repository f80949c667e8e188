"""Evaluate an image from the inside: its declared versions, and whether GPUs are available. Pure functions."""

from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from gpucheck.checks.host.locked_memory import ENOUGH_MIB, UNLIMITED
from gpucheck.images.driver_seen import HOST, evaluate_driver
from gpucheck.images.probe import ImageManifest, Library, Values
from gpucheck.model import Finding, NvmlReading

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
        yield HOST.passes(f"{devices}, libibverbs loads, locked memory not limited", WANTED)


PARTS = {"cuda": "CUDA runtime", "cudnn": "cuDNN", "nccl": "NCCL"}
MIB = 2**20
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a name in a message
# Podman's default, 64000 KiB; Docker's is 64 MiB.
DEFAULT_SHM = 64000 * 2**10
ROOMY_SHM = 1024 * MIB
# The directory in the images' LD_LIBRARY_PATH, where GKE mounts the driver.
DRIVER_FOLDERS = ("/usr/local/nvidia/lib", "/usr/local/nvidia/lib64")


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
    if seen is not None and _same(seen.partition("+")[0], manifest.version):
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
