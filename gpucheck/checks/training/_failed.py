"""What it means that a training did not end as it should."""

import re

from gpucheck.checks.training._words import distribution
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Finding
from gpucheck.model.smoke import Rejection, SmokeFailure, Trained, check_of
from gpucheck.printable import counted

# Messages of CUDA, NCCL and the loader, with their meaning. First match wins.
# Sources: CUDA runtime error strings (cudaGetErrorString), NCCL troubleshooting guide.
DRIVER = "training.driver-mismatch"
SYMPTOMS = (
    (r"no kernel image is available", "training.no-code-for-gpu"),
    (r"system not yet initialized", "training.fabric-not-ready"),
    (r"unsupported display driver / cuda driver combination|driver on your system is too old", DRIVER),
    (r"driver version is insufficient|Driver/library version mismatch", DRIVER),
    (r"busy or unavailable", "training.gpu-exclusive"),
    (r"shared memory segment|/shm/|SIGBUS|[Bb]us error", "training.shared-memory-short"),
    (r"No space left on device|Disk quota exceeded|File too large|No usable temporary", "training.no-disk-space"),
    (r"uncorrectable ECC", "training.ecc-uncorrected"),
    (r"uncorrectable NVLink", "training.nvlink-failed"),
    # As torch, the CUDA runtime and NCCL print it.
    (
        r"(?i:cuda(?: driver)?(?: error:| failure)?(?: \d+)? '?out of memory)|CUBLAS_STATUS_ALLOC_FAILED",
        "training.gpu-memory-taken",
    ),
    (r"fallen off the bus|GPU is lost|unspecified launch failure", "training.gpu-silent"),
    (r"cannot open shared object file|undefined symbol|version `.*' not found", "training.library-mismatch"),
)
# What a rank found by itself before it trained.
REJECTED: dict[Rejection, str] = {
    "precision": "training.precision-unsupported",
    "sum": "training.sum-wrong",
}
FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT", "SIGXCPU", "SIGXFSZ")
# Something ran out or interfered on the host, or the time was up, so nothing is known of GPUs and framework.
UNTESTED = {
    "training.gpu-memory-taken",
    "training.shared-memory-short",
    "training.no-disk-space",
    "training.rank-killed",
    "training.rank-no-resources",
    "training.ranks-not-started",
}


def evaluate_failure(run: Trained, failure: SmokeFailure) -> Finding:
    """SKIP for a missing package, UNKNOWN if the time or the host's resources were too short, else FAIL."""
    if failure.kind == "missing-package":
        return _missing(failure)
    if failure.kind == "no-device":
        return _no_device(failure, run.gpus or 0)
    code = _code(failure, exhausted=run.exhausted)
    unknown = failure.kind in ("timeout-start", "timeout") or code in UNTESTED
    where = (
        f"rank {failure.rank}{f' on {failure.device}' if failure.device else ''}, " if failure.rank is not None else ""
    )
    step = f"step {failure.step} of {failure.steps}, " if failure.step is not None else ""
    variant = f"{failure.variant}: " if failure.variant else ""
    removed = tuple(f"kept from the ranks: {variable}" for variable in failure.environment_removed)
    stack = tuple(f"stack: {frame}" for frame in failure.stack)
    subject = Subject(
        check=check_of(failure),
        name=f"gpu:{failure.bus_id}" if failure.bus_id else "host",
        evidence=(*failure.evidence, *stack, *removed),
    )
    seen = f"{variant}{failure.kind}: {where}in {step}{failure.phase}: {failure.detail}"
    wanted = f"{failure.world_size} ranks train {failure.steps} steps"
    return (subject.unknown if unknown else subject.fails)(code, seen, wanted)


def _missing(failure: SmokeFailure) -> Finding:
    package, framework = failure.missing or failure.framework, failure.framework
    values = {"strategy": failure.strategy, "package": package, "distribution": distribution(package)}
    seen, wanted = f"package {package} is not installed", f"{framework} in the environment of gpucheck"
    return Subject(check=check_of(failure)).skips("training.package-missing", seen, wanted, **values)


def _no_device(failure: SmokeFailure, gpus: int) -> Finding:
    subject, wanted = Subject(check=check_of(failure)), f"{failure.world_size} GPUs"
    if not gpus:
        return subject.skips("training.framework-needs-gpu", failure.detail, wanted, framework=failure.framework)
    seen = f"{failure.strategy} with {failure.framework} unknown: {failure.detail}"
    return subject.unknown(
        "training.framework-finds-no-gpu", seen, wanted, gpus=counted(gpus, "GPU"), framework=failure.framework
    )


def _code(failure: SmokeFailure, *, exhausted: bool) -> str:
    if failure.kind == "timeout":
        return "training.run-slow"
    if failure.rejected is not None:
        return REJECTED[failure.rejected]
    for pattern, code in SYMPTOMS:
        if re.search(pattern, failure.text):
            return code
    if failure.kind == "died" and failure.signal in FROM_OUTSIDE:
        return "training.rank-killed"
    # Whatever it leads to: a rank that prints it may then crash, or wait for a thread that never started.
    if failure.error_type == "MemoryError" or exhausted:
        return "training.rank-no-resources"
    if failure.kind == "timeout-start":
        return "training.start-slow" if failure.rank is not None else "training.ranks-not-started"
    if failure.kind == "hang":
        return _hang(failure)
    if failure.kind == "died":
        return "training.rank-crashed"
    return "training.rank-unreadable" if failure.kind == "garbage" else "training.rank-raised"


def _hang(failure: SmokeFailure) -> str:
    if failure.process_state in ("T", "t"):
        return "training.rank-stopped"
    if failure.process_state == "D":
        return "training.rank-in-kernel"
    on_gpu = any("cuda:" in text for text in (failure.device or "", *failure.evidence))
    return "training.gpu-ranks-stuck" if on_gpu else "training.cpu-ranks-stuck"
