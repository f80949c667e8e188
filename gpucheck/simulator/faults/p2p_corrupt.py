"""Copies between two GPUs succeed by every return code, and other data arrives."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.faults.p2p_slow import add, pair_of
from gpucheck.simulator.machine import Machine

KINDS = ("zeros", "stale", "untouched", "other-pair", "shifted", "bit-flip")


def _apply(machine: Machine, pair: str, kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"kind={kind}: choose one of {', '.join(KINDS)}")
    add(machine, "p2p-corrupt", **pair_of(machine, pair), kind=kind)


FAULT = Fault(
    name="p2p-corrupt",
    summary="copies between two GPUs deliver wrong data without an error",
    apply=_apply,
    parameters={"pair": str, "kind": "zeros"},
)
