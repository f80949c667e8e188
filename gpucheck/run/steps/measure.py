"""The measuring steps of a run: copies between GPUs, in children that are started when the step runs."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gpucheck.host.recording import Recording
from gpucheck.knowledge.codes import Subject, followed_by
from gpucheck.model import Finding, Verdict
from gpucheck.model.diagnosis.observations import Observations
from gpucheck.model.facts import Source
from gpucheck.model.measurements import copies_in_short
from gpucheck.run.step import Outcome, RunStep, numbers_of
from gpucheck.train import whole_gpus

if TYPE_CHECKING:
    from gpucheck.model.bandwidth import BandwidthReport

NAME = "p2p"
CLAIM = "copies between GPUs"
# Every name that a finding about links may have; some are also the names of checks, which explain themselves.
FINDINGS = (
    "p2p-copies", "p2p-integrity", "fabric-memory", "p2p-bandwidth", "p2p-both-ways", "p2p-latency", "staged-copies",
    "simultaneous-copies", "host-copies", "pcie-link", "uplink", "links-under-load", "p2p-status", "nvlink-links",
    "pcie-lanes", "shared-uplink", "cross-socket", "bar1", "iommu", "acs", "environment",
)  # fmt: skip
# Around the deadlines of its children: four lost ones and the start of a fifth take less.
DEADLINE_S = 600.0
# The plan's device time: 1.4 s for 2 GPUs, 8 s for 8 on NVSwitch, 10 s for 8 on PCIe. Contexts come on top.
TYPICAL_S = 10.0
ABOUT = """Copies: does every GPU pair copy right, and as fast as its path allows?

Source: copies in child processes, every byte of them compared; then timed, all directions, several sizes. The findings
are named p2p-integrity, p2p-bandwidth, p2p-latency and so on. A number is compared with what a healthy machine of that
model reaches on that path; below it, the pattern of the slow pairs and what was read give the causes in order.
gpucheck topo shows the paths, gpucheck bandwidth and gpucheck collectives measure by themselves, and gpucheck diagnose
evaluates numbers of other tools."""


def measurement_steps() -> tuple[RunStep, ...]:
    """One step for everything that copies: its parts share the children, the plan and one cause a pair group."""
    return (RunStep(NAME, frozenset({"measure"}), _p2p, DEADLINE_S, TYPICAL_S, ABOUT, FINDINGS),)


def _p2p(source: Source) -> Outcome:
    from gpucheck.measure.bandwidth import BandwidthOptions
    from gpucheck.measure.planning.selection import Unmeasurable
    from gpucheck.run.links import bandwidth, evaluated

    full = source.full if isinstance(source, Recording) else None
    try:
        if full is not None and (full.bandwidth is None or full.copied is None):
            seen = full.not_measured or "the recording contains no copies"
            return _held_to_the_level(source, (Subject(check=NAME).skips("measure.copies-not-recorded", seen),), {})
        report = (
            bandwidth(source, BandwidthOptions())
            if full is None or full.bandwidth is None or full.copied is None
            else evaluated(full.bandwidth, full.copied)
        )
    except Unmeasurable as error:
        return _held_to_the_level(source, (error.finding,), {})
    numbers = numbers_of(replace(report, observations=_rest(report)))
    return _held_to_the_level(source, report.findings, copies_in_short(numbers))


# Of the observations: what the report of a host has elsewhere, in its topology and as pairs and matrices.
ELSEWHERE = (
    "p2p_uni_gb_s", "p2p_bidir_gb_s", "staged_uni_gb_s", "staged_bidir_gb_s", "p2p_latency_us", "staged_latency_us",
    "p2p_uni_error", "p2p_bidir_error", "p2p_uni_alone", "p2p_bidir_alone",
)  # fmt: skip


def _rest(report: "BandwidthReport") -> Observations:
    seen = report.observations
    measured = replace(seen.measured, host_device=(), **dict.fromkeys(ELSEWHERE))
    return replace(seen, gpus=(), uplinks=(), matrix=None, measured=measured)


def _held_to_the_level(source: Source, findings: tuple[Finding, ...], numbers: dict[str, Any]) -> Outcome:
    """Where nothing was copied between two GPUs or more, the reason is UNKNOWN instead of SKIP.

    Whatever the plan of the host names: copies need the driver and no framework.
    """
    skipped = [finding for finding in findings if finding.verdict is Verdict.SKIP]
    gpus = whole_gpus(source)
    if gpus < 2 or not skipped or len(skipped) < len(findings):
        return Outcome(findings, numbers)
    lifted = tuple(_unknown(finding, gpus) for finding in findings)
    return Outcome(lifted, numbers, (f"{CLAIM}, {skipped[0].seen}",))


def _unknown(finding: Finding, gpus: int) -> Finding:
    return replace(
        followed_by(finding, "measure.copies-left-out"),
        verdict=Verdict.UNKNOWN,
        seen=f"{CLAIM} unknown: {finding.seen}",
        wanted=finding.wanted if finding.wanted is not None else f"copies between the {gpus} GPUs of this host",
    )
