"""The step of collectives: what training uses, between all GPUs; torch is imported in the ranks only."""

from importlib.util import find_spec

from msgspec.structs import replace

from gpucheck.checks.collectives.ranks import NAME, RESULTS, TRANSPORT
from gpucheck.knowledge.codes import Subject, followed_by
from gpucheck.model import Finding, NvmlReading
from gpucheck.model.facts import Source
from gpucheck.run.proof import REQUIRED, not_planned
from gpucheck.run.step import Outcome, RunStep, in_place_of_a_run, numbers_of
from gpucheck.run.steps.versions import NAME as VERSIONS
from gpucheck.run.steps.versions import refused, version_consistency
from gpucheck.train import whole_gpus

RANKS = Subject(check=NAME)
CLAIM = "collectives between GPUs"
FINDINGS = ("collectives-bandwidth", RESULTS, TRANSPORT)
# DDP averages and broadcasts, FSDP gathers and scatters, a pipeline sends.
USED_BY_TRAINING = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "send_recv")
# Around two runs of the ranks, with and without NVLS, each with 60 s to start and 120 s to end.
DEADLINE_S = 600.0
# Planned: 10 s to start eight ranks, 3 s of device time over NVLink and 8 s over PCIe.
TYPICAL_S = 20.0
ABOUT = """Collectives: do all GPUs together come to exact results, and as fast as the links allow?

Source: NCCL between one rank on each GPU: all_reduce, all_gather, reduce_scatter, broadcast and send/recv with a small
and a large message; every element of every rank is compared, then the bus bandwidth is timed. The transport (NVLS, P2P,
SHM, NET) is what NCCL logged. Where NCCL chose NVLS, all_reduce runs once more without it. On a simulated machine the
ranks use the CPU and gloo, which states nothing about links. By itself: gpucheck collectives."""


def collectives_step() -> RunStep:
    # Where training is excluded because the host has no torch, so are the collectives.
    return RunStep(NAME, frozenset({"measure", "training"}), _collectives, DEADLINE_S, TYPICAL_S, ABOUT, FINDINGS)


def _collectives(source: Source) -> Outcome:
    from gpucheck.measure.collectives.run import CollectiveOptions
    from gpucheck.measure.planning.selection import Unmeasurable
    from gpucheck.run.links import collectives

    why_not = _prevented(source)
    if why_not is not None:
        return why_not
    try:
        report = collectives(source, CollectiveOptions(operations=USED_BY_TRAINING))
    except Unmeasurable as error:
        return _unknown(error.finding, str(error.finding.seen))
    findings = report.findings
    if report.backend != "nccl":
        seen = f"{report.ranks} CPU ranks, gloo: no GPU and no link was used"
        findings += (RANKS.skips("measure.only-cpu-ranks", seen),)
    ran = any(result.checked for result in report.results)
    unproven = () if ran else tuple(f"{CLAIM}, {finding.seen}" for finding in findings[:1])
    return Outcome(findings, numbers_of(report, "observations", "verdict"), unproven)


def _prevented(source: Source) -> Outcome | None:
    gpus = whole_gpus(source)
    if gpus < 2:
        seen = "not run: 1 GPU" if gpus else "not run: no GPU"
        return Outcome((RANKS.skips("measure.one-rank", seen),), {})
    if not isinstance(source.read("nvml").nvml, NvmlReading):
        return _unknown(RANKS.unknown("measure.ranks-not-placed"), "NVML does not respond")
    if find_spec(REQUIRED) is None:
        found = RANKS.unknown("measure.ranks-need-torch", package=REQUIRED)
        return not_planned(source, NAME, CLAIM, gpus) or _unknown(found, f"{REQUIRED} is not installed")
    stopped = refused(version_consistency(source)).get(REQUIRED)
    return None if stopped is None else _unknown(stopped, f"{VERSIONS} fails")


def _unknown(reason: Finding, seen: str) -> Outcome:
    finding = in_place_of_a_run(NAME, replace(reason, subject="host"), f"{CLAIM} unknown: {seen}", "a run on all GPUs")
    return Outcome((followed_by(finding, "measure.collectives-left-out"),), {}, (f"{CLAIM}, {seen}",))
