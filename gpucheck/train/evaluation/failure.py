"""Evaluate a smoke test that did not finish: cause and remedy. Pure."""

import re
from typing import NamedTuple

from msgspec.structs import replace

from gpucheck.model import Finding, Verdict
from gpucheck.model.finding.about import About
from gpucheck.model.smoke import SmokeFailure
from gpucheck.printable import counted
from gpucheck.processes.exhausted import exhausted
from gpucheck.train.evaluation.finding_text import check_of, install


class Reading(NamedTuple):
    """Explanation and remedy. cause: a key of ``knowledge``, or None if the failure alone does not show it.

    tested: False if something ran out or interfered on the host, so that nothing is known of GPUs and framework.
    """

    why: str
    fix: str
    cause: str | None = None
    confidence: str | None = None
    tested: bool = True


# Messages of CUDA, NCCL and the loader, with their meaning. First match wins.
# Sources: CUDA runtime error strings (cudaGetErrorString), NCCL troubleshooting guide.
SYMPTOMS = (
    (
        r"no kernel image is available",
        Reading(
            "this torch build holds no code for this GPU",
            "install the build that gpucheck stack resolve names for this GPU",
            "arch-not-in-build",
            "certain",
        ),
    ),
    (
        r"system not yet initialized",
        Reading(
            "CUDA error 802: on an NVSwitch host the fabric manager is not running or differs from the driver",
            "start the nvidia-fabricmanager service in the driver's own version; check with: gpucheck verify",
            "fabric-manager-down",
            "likely",
        ),
    ),
    (
        r"unsupported display driver / cuda driver combination|driver on your system is too old"
        r"|driver version is insufficient|Driver/library version mismatch",
        Reading(
            "the loaded driver does not fit the CUDA of this torch build",
            "compare with: gpucheck stack resolve; reboot if the driver was just updated",
            "driver-mismatch",
            "likely",
        ),
    ),
    (
        r"busy or unavailable",
        Reading(
            "the GPU accepts no further process: exclusive compute mode, or another process uses it",
            "nvidia-smi -c 0; nvidia-smi shows the processes on the GPU",
            "compute-mode-exclusive",
            "possible",
        ),
    ),
    (
        r"shared memory segment|shared memory is short|/shm/|SIGBUS|[Bb]us error",
        Reading(
            "shared memory ran out: containers get 64 MiB of /dev/shm by default",
            "df /dev/shm; run the container with --shm-size=1g --ulimit memlock=-1, or with the host's IPC",
            "shm-too-small",
            "likely",
            tested=False,
        ),
    ),
    (
        r"No space left on device|Disk quota exceeded|File too large|No usable temporary directory",
        Reading(
            "the directory for temporary files has no space or no inodes left, or a limit of the file size is too low",
            "free space there (df -h /tmp; df -i /tmp; ulimit -f), or set TMPDIR to another directory",
            "host-resources",
            "certain",
            tested=False,
        ),
    ),
    (
        r"needs compute capability|is a mode of GPUs",
        Reading(
            "this device does not support the requested precision",
            "choose a precision that the message names, for example: gpucheck smoke --precision fp32",
        ),
    ),
    (
        r"uncorrectable ECC",
        Reading(
            "the GPU's memory had an error that could not be corrected",
            "drain the GPU and reset it; replace it if the error returns",
            "ecc-uncorrected",
            "certain",
        ),
    ),
    (
        r"CUDA out of memory|CUBLAS_STATUS_ALLOC_FAILED",
        Reading(
            "the GPU's memory is taken: this test needs less than 1 GiB a rank",
            "nvidia-smi shows which processes hold it; end them or choose other GPUs with CUDA_VISIBLE_DEVICES",
        ),
    ),
    (
        r"fallen off the bus|GPU is lost|unspecified launch failure",
        Reading(
            "the GPU stopped answering in the middle of the work",
            "read the kernel log for Xid (dmesg | grep -i xid), then: gpucheck verify --level quick",
            "gpu-lost",
            "possible",
        ),
    ),
    (
        r"cannot open shared object file|undefined symbol|version `.*' not found",
        Reading(
            "a library that this torch build needs is missing or is another version than it was built for",
            "unset LD_LIBRARY_PATH and reinstall torch in an environment of its own",
            "library-mismatch",
            "likely",
        ),
    ),
    (
        r"adds 1024 ones to",
        Reading(
            "the GPU computes or returns wrong data",
            "take the GPU out of service; look at ECC and Xid with: gpucheck verify",
            "data-corruption",
            "likely",
        ),
    ),
)

FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT", "SIGXCPU", "SIGXFSZ")
KILLED = Reading(
    "something outside the run killed the rank; when memory is short that is the kernel's OOM killer, in a container "
    "with a memory limit its cgroup's",
    "dmesg | grep -i -e oom -e 'killed process'; free -h; a rank needs about 500 MB of host memory",
    "rank-killed",
    "certain",
    tested=False,
)
OUT_OF_MEMORY = Reading(
    "the rank got no memory, thread or file from the host: a limit of the process, of its cgroup, or of the host",
    "free -h; ulimit -a; in a container raise --memory; a rank needs about 500 MB of host memory",
    "rank-killed",
    "likely",
    tested=False,
)
CRASHED = Reading(
    "native code crashed: the stack shows which call",
    "reinstall torch in an environment of its own and unset LD_LIBRARY_PATH; if it stays, report the stack",
    "library-mismatch",
    "possible",
)
STOPPED = Reading(
    "the rank's process is stopped: it was suspended (SIGSTOP, a job scheduler, a debugger)",
    "find out what suspends processes on this host, then repeat with: gpucheck smoke",
)
WEDGED = Reading(
    "the rank is inside a call into the kernel that does not return, and not even SIGKILL ends it",
    "read the kernel log for Xid (dmesg | grep -i xid), then reboot the host",
    "wedged-driver",
    "likely",
)
STUCK_ON_CPU = Reading(
    "no rank makes progress, although no GPU takes part: the stack shows the call",
    "check that the host is not out of memory or CPU time (free -h, uptime), then repeat with: gpucheck smoke",
    "rank-stuck",
    "possible",
)
STUCK_ON_GPU = Reading(
    "no rank makes progress: with GPUs this is most often peer-to-peer traffic that is granted and never arrives "
    "(IOMMU translation, ACS), or a driver fault",
    "run your own job with NCCL_P2P_DISABLE=1: if that runs, look at IOMMU and ACS with: gpucheck verify; else read "
    "the kernel log for Xid (dmesg | grep -i xid)",
    "false-p2p-grant",
    "possible",
)
RAISED = Reading(
    "an exception ended the rank: the stack shows where", "read the exception; repeat with: gpucheck smoke"
)
GARBAGE = Reading(
    "the rank exited without a readable result: code in its process exited early or overwrote its report",
    "read its output (below); check free space for temporary files (df -h /tmp); repeat with: gpucheck smoke",
)
SLOW_START = Reading(
    "the time limit ended before the ranks started: importing and compiling take long on a slow disk or a busy host",
    "repeat with more time: gpucheck smoke --timeout 300",
)
SLOW = Reading(
    "the time limit ended while the ranks made progress: no fault is known",
    "repeat with more time or fewer steps: gpucheck smoke --timeout 600",
)
NOT_STARTED = Reading(
    "no rank could be started, so training was not tested",
    "correct what the message names (space, process limit, permissions), then repeat with: gpucheck smoke",
    tested=False,
)


def evaluate_failure(failure: SmokeFailure, gpus: int | None = None) -> Finding:
    """One finding: SKIP for a missing package, UNKNOWN if the time or the host's resources were too short, else FAIL.

    gpus: how many real GPUs the host has, None if that is not known or the hardware is simulated.
    """
    if failure.kind == "missing-package":
        return _missing(failure)
    if failure.kind == "no-device":
        return _no_device(failure, gpus or 0)
    reading = _reading(failure)
    # Resources of the host and signals from outside are unrelated to GPUs, links and the framework.
    unknown = failure.kind in ("timeout-start", "timeout") or not reading.tested
    where = (
        f"rank {failure.rank}" + (f" on {failure.device}" if failure.device else "") if failure.rank is not None else ""
    )
    place, variant = _place(failure), f"{failure.variant}: " if failure.variant else ""
    removed = tuple(f"kept from the ranks: {variable}" for variable in failure.environment_removed)
    stack = tuple(f"stack: {frame}" for frame in failure.stack)
    return Finding(
        check=check_of(failure),
        verdict=Verdict.UNKNOWN if unknown else Verdict.FAIL,
        subject=f"gpu:{failure.bus_id}" if failure.bus_id else "host",
        seen=f"{variant}{failure.kind}: {', '.join(part for part in (where, place) if part)}: {failure.detail}",
        wanted=f"{failure.world_size} ranks train {failure.steps} steps",
        cause=reading.cause,
        confidence=reading.confidence,  # type: ignore[arg-type]
        owner=None if reading.tested else "site",
        why=reading.why,
        fix=reading.fix,
        evidence=(*failure.evidence, *stack, *removed),
    )


def _place(failure: SmokeFailure) -> str:
    if failure.step is None:
        return f"in {failure.phase}"
    return f"in step {failure.step} of {failure.steps}, {failure.phase}"


def _missing(failure: SmokeFailure) -> Finding:
    package = failure.missing or failure.framework
    skipped = About(check=check_of(failure)).skips(
        f"not run: {failure.strategy} needs {package}, and this Python environment does not have it",
        f"package {package} is not installed",
        wanted=f"{failure.framework} in the environment of gpucheck",
    )
    return replace(skipped, fix=install(package))


def _no_device(failure: SmokeFailure, gpus: int) -> Finding:
    about, wanted = About(check=check_of(failure)), f"{failure.world_size} GPUs"
    if gpus:
        return about.unknown(
            f"this host has {counted(gpus, 'GPU')}, and {failure.framework} found none",
            f"Check the driver: gpucheck verify --level quick\nCompare the CUDA of the installed "
            f"{failure.framework} with: gpucheck stack resolve",
            f"{failure.strategy} with {failure.framework} unknown: {failure.detail}",
            wanted=wanted,
        )
    why = f"not applicable: {failure.framework} works on GPUs only, and found none"
    return about.skips(why, failure.detail, wanted=wanted)


def _reading(failure: SmokeFailure) -> Reading:
    if failure.kind == "timeout":
        return SLOW
    text = "\n".join((failure.detail, failure.signal or "", *failure.evidence))
    for pattern, reading in SYMPTOMS:
        if re.search(pattern, text):
            return reading
    if failure.kind == "died" and failure.signal in FROM_OUTSIDE:
        return KILLED
    # Whatever it leads to: a rank that prints it may then crash, or wait for a thread that never started.
    if failure.error_type == "MemoryError" or exhausted(text):
        return OUT_OF_MEMORY
    if failure.kind == "timeout-start":
        return SLOW_START if failure.rank is not None else NOT_STARTED
    if failure.kind == "hang":
        return _hang(failure)
    if failure.kind == "died":
        return CRASHED
    return GARBAGE if failure.kind == "garbage" else RAISED


def _hang(failure: SmokeFailure) -> Reading:
    if failure.process_state in ("T", "t"):
        return STOPPED
    if failure.process_state == "D":
        return WEDGED
    on_gpu = any("cuda:" in text for text in (failure.device or "", *failure.evidence))
    return STUCK_ON_GPU if on_gpu else STUCK_ON_CPU
