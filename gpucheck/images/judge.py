"""Evaluate an image from the inside: its declared versions, and whether GPUs are available. Pure functions."""

from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from gpucheck.checks.host.locked_memory import ENOUGH_MIB, UNLIMITED
from gpucheck.images.driver_seen import evaluate_driver, finding
from gpucheck.images.probe import ImageManifest, Library, Values
from gpucheck.model import Finding, NvmlReading, Verdict

WANTED = "RDMA devices, libibverbs and unlimited locked memory"
GIVE = "docker run --device /dev/infiniband --ulimit memlock=-1 --cap-add IPC_LOCK"


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
            yield finding(
                Verdict.SKIP,
                f"the host has {' '.join(values.rdma_on_host)}, this container no /dev/infiniband",
                WANTED,
                why=f"One host does not need them. For several hosts start the container with {GIVE}.",
            )
    elif own.verbs != "loaded":
        yield finding(
            Verdict.WARN,
            f"{devices}; libibverbs.so.1 does not load",
            WANTED,
            why="NCCL loads this library at run time; without it, it uses TCP between hosts and reports no error",
            fix="install libibverbs1 ibverbs-providers librdmacm1 in the image; the CUDA variants contain them",
            evidence=(f"dlopen: {own.verbs}",),
        )
    elif limit is None:
        yield finding(
            Verdict.UNKNOWN,
            f"{devices}; locked memory limit unknown: RLIMIT_MEMLOCK cannot be read",
            WANTED,
            why="RDMA registers its buffers as locked memory",
            fix="ulimit -l",
        )
    elif limit != UNLIMITED and limit >> 20 < ENOUGH_MIB:
        yield finding(
            Verdict.WARN,
            f"{devices}; locked memory limit {limit >> 10} KiB",
            WANTED,
            cause="memlock-too-small",
            why="RDMA registers its buffers as locked memory: NCCL over InfiniBand or RoCE fails with ENOMEM",
            fix=f"start the container with --ulimit memlock=-1 ({GIVE})",
        )
    else:
        yield finding(Verdict.PASS, f"{devices}, libibverbs loads, locked memory not limited", WANTED)


PARTS = {"cuda": "CUDA runtime", "cudnn": "cuDNN", "nccl": "NCCL"}
MIB = 2**20
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a name in a message
# Podman's default, 64000 KiB; Docker's is 64 MiB.
DEFAULT_SHM = 64000 * 2**10
ROOMY_SHM = 1024 * MIB
# The directory in the images' LD_LIBRARY_PATH, where GKE mounts the driver.
DRIVER_FOLDERS = ("/usr/local/nvidia/lib", "/usr/local/nvidia/lib64")
ROOM = "start the container with --shm-size 8g, or with --ipc=host"
AGAIN = "pull or build the image again, then check it: gpucheck image"


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
        yield finding(
            Verdict.UNKNOWN, manifest, "the image's manifest", why="the image's manifest cannot be read", fix=AGAIN
        )
        return
    if manifest is None:
        names = ", ".join(f"{name} {version}" for name, version in have.items()) or "no framework"
        why = "this environment is not an image built by gpucheck, so it has no declared versions to compare with"
        yield finding(Verdict.SKIP, names, "a gpucheck image", why=why)
        return
    seen = have.get(manifest.framework)
    wanted = f"{manifest.framework} {manifest.version} ({manifest.build})"
    built = f", built for CUDA {manifest.built_for}" if manifest.built_for else ""
    if seen is not None and _same(seen.partition("+")[0], manifest.version):
        yield finding(Verdict.PASS, f"{manifest.framework} {seen}{built}", wanted)
        return
    yield finding(
        Verdict.FAIL,
        f"{manifest.framework} {seen or 'not installed'}",
        wanted,
        cause="library-mismatch",
        why="the image was changed after it had been tested",
        fix=f"keep the {manifest.framework} of the image, or use the variant with the version you need; {AGAIN}",
    )


def _libraries(values: Values) -> Iterator[Finding]:
    manifest, own = values.manifest, values.own
    if not isinstance(manifest, ImageManifest):
        return
    if own.error is not None:
        yield finding(
            Verdict.UNKNOWN,
            f"self-report of the CUDA libraries: {own.error}",
            "a result",
            why="the process that queries the library versions exited or hung",
            fix="python -m gpucheck.images.selfreport shows the whole error",
        )
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
        why, seen = "the image lacks a library that its framework needs", "missing"
    elif found.error is not None:
        why, seen = "the library does not load", found.error
    elif len(paths) > 1:
        why, seen = "the search path determines which copy is loaded", f"{len(paths)} copies"
    elif wanted is None or not _same(found.version or "", wanted, parts=2 if part == "cuda" else 3):
        why, seen = "another version than the one the framework was tested with", str(found.version)
    else:
        return finding(Verdict.PASS, f"{words} {found.version}, as the library reports", expected, evidence=paths)
    fix = f"remove the packages that were added to the image; {AGAIN}"
    return finding(
        Verdict.FAIL, f"{words}: {seen}", expected, cause="library-mismatch", why=why, fix=fix, evidence=paths
    )


def _same(one: str, other: str, parts: int = 3) -> bool:
    """Return whether releases are equal in the numbers of the library; the fourth of cuDNN is its package's."""
    try:
        return Version(one).release[:parts] == Version(other).release[:parts]
    except InvalidVersion:
        return False


def _search_path(values: Values) -> Iterator[Finding]:
    """Report directories with libraries that the wheels also include; other directories are for the driver."""
    for folder, names in values.own.shadowing.items():
        yield finding(
            Verdict.WARN,
            f"LD_LIBRARY_PATH contains {folder} with {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}",
            "no CUDA library in the directories of LD_LIBRARY_PATH",
            cause="leftover-environment",
            why="libraries in this directory are loaded before those that the framework was tested with",
            fix="start the container without LD_LIBRARY_PATH (apptainer --cleanenv): the wheels find their libraries",
            evidence=(f"LD_LIBRARY_PATH={values.environment.get('LD_LIBRARY_PATH', '')}",),
        )


def _full(values: Values) -> Iterator[Finding]:
    """Compare the imported framework with the declared versions; published TensorFlow images failed here."""
    manifest, reported = values.manifest, values.full
    if reported is None or not isinstance(manifest, ImageManifest):
        return
    if "unknown" in reported:
        yield finding(
            Verdict.UNKNOWN,
            f"import {manifest.framework} unknown: {reported['unknown']}",
            "it imports",
            why="The process that imports the framework was not started or was killed. The image was not tested.",
            fix="free -h; ulimit -a; dmesg | grep -i -e oom -e 'killed process'; in a container raise --memory",
        )
        return
    if "error" in reported:
        yield finding(
            Verdict.FAIL,
            f"import {manifest.framework}: {reported['error']}",
            "it imports",
            why="the framework does not import in this container",
            fix=f"python -c 'import {manifest.framework}' shows the whole error; {AGAIN}",
        )
        return
    wrong = [
        f"{key} {reported.get(key)}, declared {want}"
        for key, want in _wanted(manifest)
        if not _agrees(reported.get(key), want)
    ]
    seen = ", ".join(f"{key} {reported[key]}" for key in ("version", "cuda", "cudnn", "nccl") if reported.get(key))
    if not wrong:
        yield finding(Verdict.PASS, f"{manifest.framework} reports {seen}", "as declared")
        return
    yield finding(
        Verdict.FAIL,
        f"{manifest.framework} reports {'; '.join(wrong)}",
        "as declared",
        cause="library-mismatch",
        why="the framework was built for other libraries than those of the image",
        fix=AGAIN,
    )


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
        return finding(Verdict.PASS, seen, wanted)
    if size is not None and size >= DEFAULT_SHM and gpus < 2:
        why = f"enough for one process; for several ranks or DataLoader workers {ROOM}"
        return finding(Verdict.SKIP, seen, wanted, why=why)
    why = "NCCL and DataLoader workers keep their buffers there and fail with 'Bus error' or 'No space left on device'"
    return finding(Verdict.WARN, seen, wanted, cause="shm-too-small", why=why, fix=ROOM)
