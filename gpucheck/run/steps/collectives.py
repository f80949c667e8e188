"""The step of collectives: what training uses, between all GPUs; torch is imported in the ranks only."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gpucheck.model import Finding, Host, NvmlReading
from gpucheck.model.finding.about import About
from gpucheck.run.proof import REQUIRED, not_required
from gpucheck.run.step import Outcome, Step, numbers_of
from gpucheck.run.steps.versions import NAME as VERSIONS
from gpucheck.run.steps.versions import refused, version_consistency
from gpucheck.train import whole_gpus
from gpucheck.train.evaluation.finding_text import install

if TYPE_CHECKING:
    from gpucheck.model.collectives import CollectivesReport

NAME = "collectives"
CLAIM = "collectives between GPUs"
TRANSPORT = "collectives-transport"
FINDINGS = ("collectives-bandwidth", "collectives-results", TRANSPORT)
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
# Through host memory or the network stack.
STAGED = ("NET", "SHM")


def collectives_step() -> Step:
    # Where training is excluded because the host has no torch, so are the collectives.
    return Step(NAME, frozenset({"measure", "training"}), _collectives, DEADLINE_S, TYPICAL_S, ABOUT, FINDINGS)


def _collectives(host: Host) -> Outcome:
    from gpucheck.measure.collectives.run import Options
    from gpucheck.measure.planning.selection import Unmeasurable
    from gpucheck.run.links import collectives

    why_not = _prevented(host)
    if why_not is not None:
        return why_not
    try:
        report = collectives(host, Options(operations=USED_BY_TRAINING))
    except Unmeasurable as error:
        found = error.finding
        seen = str(error) if found is None else str(found.seen)
        why, fix = (found.why, found.fix) if found is not None else (str(error), "gpucheck collectives shows more")
        return _unknown(seen, why, fix)
    findings = (*report.findings, *_transport(report), *_cpu_ranks(report))
    ran = any(result.checked for result in report.results)
    unproven = () if ran else tuple(f"{CLAIM}, {finding.seen}" for finding in findings[:1])
    return Outcome(findings, numbers_of(report, "observations", "verdict"), unproven)


def _prevented(host: Host) -> Outcome | None:
    """Return the outcome where the ranks are not started, None where they are."""
    gpus = whole_gpus(host)
    if gpus < 2:
        seen = "not run: 1 GPU" if gpus else "not run: no GPU"
        return Outcome((About(check=NAME).skips("a collective needs two ranks, and NCCL one GPU for each", seen),), {})
    if not isinstance(host.nvml(), NvmlReading):
        return _unknown("NVML does not respond", "the ranks are placed by NVML", "gpucheck verify --only driver")
    if find_spec(REQUIRED) is None:
        reason = not_required(host, REQUIRED, gpus)
        if reason is not None:
            return Outcome((About(check=NAME).skips(f"not run: {reason}", "not run"),), {}, (f"{CLAIM}, {reason}",))
        why = f"the Python environment of gpucheck lacks {REQUIRED}, which starts NCCL"
        fix = f"Install it where gpucheck runs: {install(REQUIRED)} (gpucheck stack resolve names the build)"
        return _unknown(f"{REQUIRED} is not installed", why, fix)
    stopped = refused(version_consistency(host)).get(REQUIRED)
    return None if stopped is None else _unknown(f"{VERSIONS} fails", stopped.why, stopped.fix)


def _unknown(seen: str, why: str, fix: str) -> Outcome:
    fix = f"{fix}\nOr omit collectives: gpucheck verify --skip {NAME}"
    finding = About(check=NAME).unknown(why, fix, f"{CLAIM} unknown: {seen}", wanted="a run on all GPUs")
    return Outcome((finding,), {}, (f"{CLAIM}, {seen}",))


def _transport(report: "CollectivesReport") -> Iterator[Finding]:
    """Return a finding on what NCCL logged, unless there is one, or nothing was run on GPUs."""
    evaluated = any(finding.check == TRANSPORT for finding in report.findings)
    if report.backend != "nccl" or evaluated or not report.results:
        return
    about = About(check=TRANSPORT)
    if not report.transports:
        yield about.unknown(
            "NCCL's log has no line that names a transport, as a version that prints other lines would have",
            "NCCL_DEBUG=INFO with a job of your own shows what NCCL prints",
            "transport unknown",
        )
        return
    channels = ", ".join(f"{kind} ({count} channels)" for kind, count in report.transports.items())
    chosen = ", ".join(report.algorithms.get("AllReduce", ()))
    version = report.versions.get("nccl") or ""
    seen = f"NCCL {version}: {channels}".replace("NCCL :", "NCCL:") + (f"; all_reduce {chosen}" if chosen else "")
    joined_by_nvlink = any(result.expected_busbw_gb_s for result in report.results)
    if joined_by_nvlink and any(kind.startswith(STAGED) for kind in report.transports):
        yield about.warns(
            seen,
            "P2P or NVLS",
            "NVLinks join all of these GPUs, and NCCL moves data through host memory or the network stack",
            "gpucheck bandwidth shows whether copies are direct; look for NCCL_P2P_DISABLE and NCCL_P2P_LEVEL in the "
            "environment of jobs, /etc/nccl.conf and ~/.nccl.conf",
            None,
        )
    else:
        yield about.passes(seen)


def _cpu_ranks(report: "CollectivesReport") -> Iterator[Finding]:
    """Return the SKIP that a run on CPU ranks ends with."""
    if report.backend != "nccl":
        seen = f"{report.ranks} CPU ranks, gloo: no GPU and no link was used"
        why = "the GPUs of this machine are simulated; the results between CPU ranks are real"
        yield About(check=NAME).skips(why, seen)
