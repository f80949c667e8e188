"""When a burn-in stops early: a GPU or its memory too hot, or errors that end trust in the GPU.

A limit is looked at after each step, of at most a minute. The protection of the GPU itself acts at once.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpucheck.compute.burnin.plan import span
from gpucheck.compute.evaluation.groups import KINDS, subject_of
from gpucheck.compute.values import Failure, Opened
from gpucheck.knowledge.codes import Subject
from gpucheck.measure.planning.selection import Unmeasurable
from gpucheck.model import Finding, Gpu
from gpucheck.model.compute import BurnIn, ComputeDevice, Sample

NAME = "compute-burn-in"
BELOW_SHUTDOWN_C = 2
FATAL = tuple(name for name, kind in KINDS.items() if kind.fails)


class Reached(NamedTuple):
    """A limit that a GPU reached. text: for the report of the run. values: of the code."""

    text: str
    code: str
    values: dict[str, Any]


class BurnInLimits(NamedTuple):
    """temperature_c: by index, None where nothing is known. configured: it was given as --max-temperature.

    memory_c: by index, at which a GPU slows down for its memory; only where NVML reports it.
    by_margin: GPUs that report the margin to their slowdown instead of a temperature to stop at: Ada and newer.
    """

    temperature_c: dict[int, float | None]
    configured: bool
    memory_c: dict[int, float]
    by_margin: frozenset[int] = frozenset()

    def unknown(self) -> tuple[int, ...]:
        """Return the GPUs of which no limit of temperature is known."""
        return tuple(i for i, limit in self.temperature_c.items() if limit is None and i not in self.by_margin)

    def words(self) -> tuple[str, ...]:
        """Return each limit with its source."""
        known = {limit for limit in self.temperature_c.values() if limit is not None}
        source = "--max-temperature" if self.configured else f"NVML's shutdown temperature less {BELOW_SHUTDOWN_C}"
        degrees = ", ".join(f"{limit:g} C" for limit in sorted(known))
        memory = ", ".join(f"{limit:g} C" for limit in sorted(set(self.memory_c.values())))
        return (
            *((f"temperature of a GPU: {degrees} (source: {source})",) if known else ()),
            *((f"temperature of the memory: {memory} (source: NVML's limit of that memory)",) if memory else ()),
            *(("margin of a GPU to its slowdown: 0 C (source: NVML's T.Limit of that GPU)",) if self.by_margin else ()),
            f"errors: any of {', '.join(FATAL)} (source: NVML's counters, while gpucheck computes)",
        )

    def reached(self, index: int, samples: Sequence[Sample], errors: Mapping[str, int]) -> Reached | None:
        """Return which limit a GPU reached, None for none."""
        rose = tuple(f"{errors[name]} {name}" for name in FATAL if errors.get(name))
        if rose:
            text = f"errors: GPU {index} counted {', '.join(rose)}"
            return Reached(text, "compute.burn-in-errors", {"errors": rose})
        left = min((s.margin_c for s in samples if s.margin_c is not None), default=None)
        if index in self.by_margin and left is not None and left <= 0:
            text = f"temperature: GPU {index} reached its slowdown T.Limit (margin {left:g} C)"
            return Reached(text, "compute.burn-in-slowdown-limit", {"margin_c": left})
        own = ("--max-temperature", "compute.burn-in-own-limit")
        usual = (f"{BELOW_SHUTDOWN_C} below its shutdown temperature", "compute.burn-in-shutdown-limit")
        of_memory = ("at which it slows down", "compute.burn-in-memory-limit")
        for what, limit, found, (source, code) in (
            ("", self.temperature_c.get(index), [s.temperature_c for s in samples], own if self.configured else usual),
            (", memory,", self.memory_c.get(index), [s.memory_temperature_c for s in samples], of_memory),
        ):
            hottest = max((degrees for degrees in found if degrees is not None), default=None)
            if limit is not None and hottest is not None and hottest >= limit:
                text = f"temperature: GPU {index}{what} reached {hottest:g} C, limit {limit:g} C ({source})"
                values = {"reached_c": hottest, "limit_c": limit, "below_c": BELOW_SHUTDOWN_C}
                return Reached(text, code, values)
        return None


def limits(gpus: Sequence[Gpu], opened: Sequence[Opened | Failure], limit_c: float | None) -> BurnInLimits:
    """Return the limits. opened: the same GPUs. limit_c: the temperature that the user gave.

    Raises Unmeasurable if no limit of a GPU is known: hours of load would have no end.
    """
    own = {gpu.index: gpu.health.temperature_shutdown_c for gpu in gpus}
    by_gpu = {i: limit_c if limit_c is not None else (c - BELOW_SHUTDOWN_C if c else None) for i, c in own.items()}
    memory = {
        gpu.index: one.memory_limit_c
        for gpu, one in zip(gpus, opened, strict=False)  # CPU processes are no GPUs
        if isinstance(one, Opened) and one.memory_limit_c is not None
    }
    margins = (g.index for g in gpus if by_gpu[g.index] is None and g.health.temperature_margin_c is not None)
    found = BurnInLimits(by_gpu, limit_c is not None, memory, frozenset(margins))
    if unknown := found.unknown():
        seen = "limit of temperature unknown"
        raise Unmeasurable(Subject(check=NAME).unknown("compute.no-temperature-limit", seen, gpus=unknown))
    return found


def ending(burn_in: BurnIn, stopped_by: tuple[ComputeDevice, Reached] | None) -> Finding:
    """Return the finding about the run as a whole: what was planned and what is proven."""
    done, planned = span(burn_in.seconds), span(burn_in.planned_seconds)
    evidence = (f"{burn_in.rounds} of {burn_in.planned_rounds} rounds", *burn_in.limits)
    subject = Subject(check=NAME, evidence=evidence)
    if burn_in.ended == "complete":
        return subject.passes(f"{done} of cold and hot load, {burn_in.rounds} rounds")
    seen, wanted = f"ended after {done} of {planned}", f"{planned} of load"
    if burn_in.ended == "interrupted":
        return subject.unknown("compute.burn-in-interrupted", seen, wanted, state=burn_in.state)
    if burn_in.ended == "no-device" or stopped_by is None:
        return subject.unknown("compute.burn-in-no-gpu", seen, wanted)
    device, limit = stopped_by
    subject = subject_of(NAME, device, *evidence)
    fails = limit.code == "compute.burn-in-shutdown-limit"
    return (subject.fails if fails else subject.warns)(limit.code, seen, wanted, **limit.values)
