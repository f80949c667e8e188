"""Run one smoke test: find its program and packages, supervise its ranks, merge their reports."""

import math
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from gpucheck.model import NvmlReading
from gpucheck.model.facts import Source
from gpucheck.model.smoke import NVLS, SmokeFailure, SmokeResult
from gpucheck.processes.environment import rank_environment as clean_environment
from gpucheck.processes.ranks.supervisor import Ending, RankRun, supervise
from gpucheck.train.progress import RankReport, position_of
from gpucheck.train.results.failing_rank import failed, find_failing_rank
from gpucheck.train.results.merge import merge
from gpucheck.train.spec import SmokeOptions
from gpucheck.train.strategies import all_strategies

SECOND_STEP = (1, 2, 0)
NVLS_MAJOR = 9  # compute capability
SET_FOR_TRAINING = {
    "MKL_NUM_THREADS": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # bit-equal repeats need a fixed cuBLAS workspace
    "TF_CPP_MIN_LOG_LEVEL": "2",  # TensorFlow prints the features of its build on every import
}


def run_smoke(options: SmokeOptions, environment: Mapping[str, str] | None = None) -> SmokeResult | SmokeFailure:
    """Run it. The framework is imported by the ranks only.

    environment: inherited by the ranks after cleaning, by default that of this process. KeyboardInterrupt and
    SystemExit pass through after the ranks have ended.
    """
    strategy = all_strategies()[options.framework, options.strategy]
    ranks, removed = rank_environment(os.environ if environment is None else environment, options)
    for package in strategy.packages:
        if find_spec(package) is None:
            detail = f"package {package} is not installed"
            return failed(options, removed, kind="missing-package", detail=detail, missing=package)
    try:
        processes = options.world_size if strategy.process_per_device else 1
        ending = train_in_ranks(strategy.program, options, ranks, processes=processes)
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        detail = f"the ranks could not be started: {error.strerror or error}{place}"
        return failed(options, removed, kind="timeout-start", detail=detail)
    return conclude(ending, options, removed)


def rank_environment(caller: Mapping[str, str], options: SmokeOptions) -> tuple[dict[str, str], tuple[str, ...]]:
    """The ranks' environment, and ``NAME=value`` of each variable of the caller's that was removed."""
    kept, removed = clean_environment(caller, options.nodes)
    devices = {} if options.visible_devices is None else {"CUDA_VISIBLE_DEVICES": options.visible_devices}
    return kept | SET_FOR_TRAINING | {"NCCL_NVLS_ENABLE": str(int(options.variant == NVLS))} | devices, removed


def train_in_ranks(
    program: str, options: SmokeOptions, environment: Mapping[str, str], *, processes: int | None = None
) -> Ending[RankReport]:
    """Run this host's ranks of a program to their end, or to the deadline. Raises OSError as ``supervise`` does.

    program: ``module:function`` with the training of one rank. processes: over all hosts, by default one a device.
    """

    def least(progress: Sequence[bytes]) -> tuple[int, int, int]:
        return min(position_of(line).order() for line in progress)

    def stall_s(progress: Sequence[bytes]) -> float:
        """Return the longest that no rank enters a phase: without limit before every rank trains, or has trained."""
        place = least(progress)
        if place[0] == 0:
            return math.inf
        return options.stall_s if place >= SECOND_STEP else max(options.stall_s, options.first_s)

    ranks = RankRun(
        name="smoke",
        program=("gpucheck.train.rank", program),
        options=options,
        report=RankReport,
        processes=processes or options.world_size,
        nodes=options.nodes,
        timeout_s=options.timeout_s,
        start_s=options.start_s,
        has_begun=lambda progress: least(progress) >= SECOND_STEP,
        stall_s=stall_s,
    )
    ending = supervise(ranks, environment)
    if ending.signal is not None:
        raise ending.signal
    return ending


def conclude(ending: Ending[RankReport], options: SmokeOptions, removed: tuple[str, ...]) -> SmokeResult | SmokeFailure:
    """Return the result of a run that finished, or the failure of one that did not."""
    if ending.reason != "finished":
        return find_failing_rank(ending, options, removed)
    reports = (*(end.report for end in ending.ranks if end.report is not None), *ending.shared)
    return merge(tuple(sorted(reports, key=lambda report: report.rank)), options, ending.seconds, removed, ending.taken)


def real_gpus(source: Source) -> int | None:
    """Return how many GPUs a framework should find: ``whole_gpus`` of a real host.

    None if unknown: the hardware is simulated, or the caller chose devices with CUDA_VISIBLE_DEVICES.
    """
    simulated = source.read("simulation").simulation is not None
    return None if simulated or "CUDA_VISIBLE_DEVICES" in os.environ else whole_gpus(source)


def gpus_to_train_on(source: Source) -> int:
    """Return how many real GPUs torch will find: 0 if they are simulated, or its build has no CUDA.

    The caller's CUDA_VISIBLE_DEVICES counts. With MIG the instances that train, at most two: CUDA then shows a process
    one of them and no undivided GPU.
    """
    facts = source.read("nvml", "simulation", "python:torch")
    gpus, build = facts.gpus, facts.python_packages["torch"] or ""
    if facts.simulation is not None or build.endswith("+cpu"):
        return 0
    if any(gpu.health.mig for gpu in gpus):
        return len(mig_instances(source))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return len(gpus) if visible is None else min(sum(bool(word.strip()) for word in visible.split(",")), len(gpus))


def mig_instances(source: Source) -> tuple[str, ...]:
    """Return the UUIDs of two MIG instances to train on, or of the only one.

    The caller's CUDA_VISIBLE_DEVICES counts. Empty without MIG and on simulated hardware.
    """
    facts = source.read("nvml", "simulation")
    nvml = facts.nvml
    if facts.simulation is not None or not isinstance(nvml, NvmlReading):
        return ()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    there = (uuid for gpu in nvml.gpus if gpu.health.mig for uuid in gpu.mig_uuids)
    named = (name.strip() for name in visible.split(",")) if visible is not None else there
    return tuple(name for name in named if name.startswith("MIG-"))[:2]


def has_switch(source: Source) -> bool:
    """Return whether all GPUs are joined by NVSwitches that can sum: those of Hopper and later.

    Source: NCCL, NCCL_NVLS_ENABLE: NVLink SHARP of third-generation NVSwitch systems (NVLink 4) with Hopper and later.
    """
    gpus = source.read("nvml").gpus
    return bool(gpus) and all(
        int((gpu.compute_capability or "0").partition(".")[0]) >= NVLS_MAJOR
        and any(link.remote_kind == "switch" for link in gpu.nvlinks)
        for gpu in gpus
    )


def whole_gpus(source: Source) -> int:
    """Return how many GPUs NVML lists that are not split by MIG; GPUs on the PCI bus if NVML fails.

    A container sees every GPU of its host on the PCI bus, and only its own through NVML.
    """
    nvml = source.read("nvml").nvml
    if isinstance(nvml, NvmlReading):
        return sum(not gpu.health.mig for gpu in nvml.gpus)
    return sum(device.is_nvidia_gpu for device in source.read("pci").pci)
