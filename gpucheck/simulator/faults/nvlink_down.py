"""One NVLink is down; a cable between two GPUs is down at both ends."""

from gpucheck.simulator.faults import Fault
from gpucheck.simulator.machine import Machine


def _apply(machine: Machine, gpu: int, link: int) -> None:
    links = machine.gpu(gpu).links
    if not links:
        raise ValueError(f"GPU {gpu} ({machine.gpu(gpu).model.name}) has no NVLink")
    if link >= len(links) or not links[link].active:
        active = [number for number, one in enumerate(links) if one.active]
        raise ValueError(f"link={link}: the active links of GPU {gpu} are {active}")
    peer = links[link].peer
    links[link].active = False
    if peer is not None:
        machine.gpu(peer[0]).links[peer[1]].active = False


FAULT = Fault(
    name="nvlink-down",
    summary="one NVLink of a GPU is down",
    apply=_apply,
    parameters={"gpu": int, "link": int},
)
