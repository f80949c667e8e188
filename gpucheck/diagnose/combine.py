"""Several sources about one machine become one set of observations; where two differ in size nothing is guessed."""

from typing import Any

from msgspec.structs import replace

from gpucheck.diagnose._cells import MOST_GPUS
from gpucheck.knowledge.strict import InputProblem as ObservationProblem
from gpucheck.model.observations import Import, Measured, Observations, ObservedGpu
from gpucheck.model.topology import Topology

Found = Topology | Import

LISTS = ("collectives", "host_device", "flows", "under_load", "damaged", "failures")


def together(seen: Observations, found: Found) -> Observations:
    """Observations with another tool's answer added; what is known already stays.

    Raises ObservationProblem where the two speak of different numbers of GPUs, or of more than one machine has.
    """
    added = _from_topology(found) if isinstance(found, Topology) else _from_import(found)
    count, other = len(seen.gpus), len(added.gpus)
    if max(other, len(added.matrix or ())) > MOST_GPUS:
        raise ObservationProblem(f"more than {MOST_GPUS} GPUs, which no machine has. Give the matrix of one machine")
    if count and other and count != other:
        raise ObservationProblem(
            f"{other} GPUs here, {count} in what was read before: these are not of one machine. "
            "Give output of one run with the same CUDA_VISIBLE_DEVICES"
        )
    gpus = tuple(_gpu(a, b) for a, b in zip(seen.gpus, added.gpus, strict=True)) if count and other else ()
    return replace(
        seen,
        gpus=gpus or seen.gpus or added.gpus,
        matrix=seen.matrix or added.matrix,
        p2p_access=seen.p2p_access if seen.p2p_access is not None else added.p2p_access,
        environment={**added.environment, **seen.environment},
        measured=_measured(seen.measured, added.measured),
    )


def _gpu(one: ObservedGpu, other: ObservedGpu) -> ObservedGpu:
    filled: dict[str, Any] = {
        name: getattr(other, name) for name in ("model", "bus_id", "numa_node") if getattr(one, name) is None
    }
    return replace(one, **filled)


def _measured(one: Measured, other: Measured) -> Measured:
    filled: dict[str, Any] = {}
    for name in one.__struct_fields__:
        here, there = getattr(one, name), getattr(other, name)
        if name in LISTS:
            filled[name] = here + there
        elif name == "method":
            method = {"engine": here.engine or there.engine, "direction": here.direction or there.direction}
            filled[name] = replace(here, **method)
        elif here is None or here == {}:
            filled[name] = there
    return replace(one, **filled)


def _from_topology(topology: Topology) -> Observations:
    gpus = [ObservedGpu(model=g.name, bus_id=g.pci_bus_id, numa_node=g.numa_node) for g in topology.gpus]
    matrix = tuple(tuple(None if cell == "X" else cell for cell in row) for row in topology.matrix)
    return Observations(gpus=tuple(gpus), matrix=matrix)


def _from_import(found: Import) -> Observations:
    return Observations(
        gpus=found.gpus, p2p_access=found.p2p_access, environment=found.environment, measured=found.measured
    )
