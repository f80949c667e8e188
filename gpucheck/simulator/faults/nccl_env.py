"""A variable left in the environment changes what NCCL does. This process's own environment stays as it is."""

import re

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine

NAME = re.compile(r"[A-Z_][A-Z0-9_]*")


def _apply(machine: Machine, name: str = "NCCL_P2P_DISABLE", value: str = "1") -> None:
    if not NAME.fullmatch(name):
        raise ValueError(f"name={name}: a variable's name is of capitals, digits and _")
    environment = machine.surroundings.get("environment", {})
    assert isinstance(environment, dict)  # noqa: S101 - only this fault writes it
    machine.surroundings["environment"] = environment | {name: value}


FAULT = Fault("nccl-env", "a variable that steers NCCL, CUDA or the loader was left in the environment", _apply)
