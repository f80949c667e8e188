"""Copies between two GPUs succeed by every return code, and other data arrives."""

from gpucheck.simulator.faults import Fault, check_choice
from gpucheck.simulator.faults.p2p_slow import pair_of
from gpucheck.simulator.machine import Machine

KINDS = ("zeros", "stale", "untouched", "other-pair", "shifted", "bit-flip")


def _apply(machine: Machine, pair: str, kind: str = "zeros") -> None:
    check_choice("kind", kind, KINDS)
    machine.surround("measurement", fault="p2p-corrupt", **pair_of(machine, pair), kind=kind)


FAULT = Fault("p2p-corrupt", "copies between two GPUs deliver wrong data without an error", _apply)
