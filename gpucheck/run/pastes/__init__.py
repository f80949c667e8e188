"""Diagnose pasted text: parts of one host together, each evaluated like that of a live host."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from gpucheck.checks.kernel import log as kernel_log
from gpucheck.diagnose import diagnose
from gpucheck.diagnose.messages import of_messages
from gpucheck.model import KernelLog, NvmlReading, TopologyGpu, Verdict
from gpucheck.model.diagnosis import Diagnosis
from gpucheck.model.diagnosis.observations import Observations, ObservedGpu
from gpucheck.model.diagnosis.paste import Part, Reading
from gpucheck.model.finding import Finding
from gpucheck.run.conclusion import conclude
from gpucheck.run.pastes import host as pasted_host
from gpucheck.run.pastes.one_machine import NOTHING, TwoMachines, observations, of_one_machine

__all__ = ["TwoMachines", "diagnosis"]

MOST_LINES = 500_000


def diagnosis(
    readings: Sequence[Reading],
    given: Observations | None = None,
    *,
    sources: tuple[str, ...],
    model: str | None = None,
    machine: str | None = None,
    strict: bool = False,
) -> Diagnosis:
    """Evaluate all inputs as one host.

    given: observations of the user's own. model: of GPUs whose model no input names. machine: the host whose parts
    count, where the inputs name several. Raises TwoMachines.
    """
    parts = of_one_machine([part for reading in readings for part in reading.parts], machine)
    seen = observations(parts, given or NOTHING, model)
    # ECC, row remapping, throttling, MIG, limits: what nvidia-smi reports of each GPU, evaluated as on a live host.
    state = pasted_host.findings(parts)
    of_links = pasted_host.of_links(diagnose(seen), seen, state) if _has_observations(seen) else ()
    logs = _kernel_log(parts)
    findings: list[Finding] = [*of_links]
    findings += kernel_log.evaluate(kernel_log.Values(log=logs, gpus=_bus_ids(seen))) if logs is not None else ()
    findings += of_messages(message for part in parts for message in part.messages)
    findings += state
    # Where no bus id was given, the subject is GPU and its position. A part of a table has the driver's own numbers.
    numbers = {
        gpu.pci_bus_id: gpu.index for part in parts if isinstance(part.nvml, NvmlReading) for gpu in part.nvml.gpus
    }
    listed = [
        TopologyGpu(index=numbers.get(gpu.bus_id or "", i), pci_bus_id=gpu.bus_id or f"GPU{i}")
        for i, gpu in enumerate(seen.gpus)
    ]
    found, verdict, counts = conclude(findings or (_nothing_evaluated(),), listed, strict=strict)
    return Diagnosis(
        verdict=verdict,
        source=sources,
        machine=next((part.machine for part in parts if part.machine), None),
        gpus=max(len(seen.gpus), len(kernel_log.gpus_named(logs)) if logs is not None else 0),
        findings=found,
        counts=counts,
        read=tuple(one for part in parts for one in part.ranges),
        unread=tuple(one for reading in readings for one in reading.unread),
        observations=seen,
        looked_at=tuple(dict.fromkeys(words for part in parts for words in part.looked_at)),
        unproven=_unproven(seen),
    )


def _kernel_log(parts: Iterable[Part]) -> KernelLog | None:
    logs = [part.kernel for part in parts if part.kernel is not None]
    if not logs:
        return None
    lines = tuple(line for log in logs for line in log.lines)[-MOST_LINES:]
    return replace(logs[0], lines=lines)


def _bus_ids(seen: Observations) -> tuple[str, ...]:
    return tuple(gpu.bus_id for gpu in seen.gpus if gpu.bus_id)


def _has_observations(seen: Observations) -> bool:
    """Whether there is more to evaluate than the names of GPUs."""
    return replace(seen, gpus=()) != NOTHING or any(
        replace(gpu, model=None, bus_id=None, numa_node=None) != ObservedGpu() for gpu in seen.gpus
    )


def _unproven(seen: Observations) -> tuple[str, ...]:
    """Return what readiness for training needs and no input covers."""
    measured = seen.measured
    some = len(seen.gpus) != 1
    missing = {
        "bandwidth between GPUs": some and measured.p2p_uni_gb_s is None and measured.p2p_bidir_gb_s is None,
        "that copies between GPUs arrive intact": some
        and measured.integrity_bad_pairs is None
        and measured.bytes_compared is None
        and not measured.damaged,
        "collectives": some and not measured.collectives,
        "a training run": True,
    }
    return tuple(words for words, is_missing in missing.items() if is_missing)


def _nothing_evaluated() -> Finding:
    return Finding(
        check="paste",
        verdict=Verdict.UNKNOWN,
        subject="host",
        why="the input was read, but contains no evidence of the state of the host",
        fix="add what was measured, or the kernel log: sudo dmesg",
    )
