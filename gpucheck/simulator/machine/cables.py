"""The NVLinks of a profile: the far end of each port of each GPU."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpucheck.simulator.machine.devices import gpus_of, models_of, part_of
from gpucheck.simulator.machine.profile import Part, Profile

# NVML: nvmlIntNvLinkDeviceType_t
REMOTE_GPU, REMOTE_SWITCH = 0, 2
CABLE_END = re.compile(r"gpu (\d+) link (\d+)")
HIDDEN = "switch"


@dataclass
class Link:
    """One NVLink port. peer: (GPU index, its port) for a cable between two GPUs. bus_id None: the far end is hidden."""

    active: bool = False
    remote_type: int | None = None
    bus_id: str | None = None
    peer: tuple[int, int] | None = None


def check_nvlinks(profile: Profile) -> None:
    """Raise ValueError where a link is used twice, leads nowhere, or its GPU has no such link."""
    models = models_of(profile)
    for switch in (s for _, switches in _switched(profile) for s in switches):
        _check_switch(profile, switch)
    for a, b, links in profile.nvlink.pairs:
        if a == b or not (0 <= a < len(models) and 0 <= b < len(models)) or links < 1:
            raise ValueError(
                f"nvlink.pairs [{a}, {b}, {links}]: needs two of GPUs 0 to {len(models) - 1} and some links"
            )
    _check_ports(profile, len(models))
    for gpu, (model, used) in enumerate(zip(models, _used(profile, len(models)), strict=True)):
        has = model.nvlink.links if model.nvlink else 0
        if used > has:
            raise ValueError(f"nvlink: GPU {gpu} would need {used} links, {model.name} has {has}")


def links_of(profile: Profile) -> list[list[Link]]:
    """Every port of every GPU, in NVML's order."""
    buses = [device.bus_id for device in gpus_of(profile)]
    ports = [[Link() for _ in range(m.nvlink.links if m.nvlink else 0)] for m in models_of(profile)]
    _named(profile, buses, ports)
    free = [(number for number, link in enumerate(row) if not link.active) for row in ports]
    for a, b, count in profile.nvlink.pairs:
        for _ in range(count):
            _join(ports, buses, (a, next(free[a])), (b, next(free[b])))
    for gpus, switches in _switched(profile):
        for gpu in gpus:
            for switch, count in switches.items():
                for _ in range(count):
                    ports[gpu][next(free[gpu])] = Link(True, REMOTE_SWITCH, switch)
    for gpu, row in enumerate(ports):
        for _ in range(profile.nvlink.hidden_switch_links):
            row[next(free[gpu])] = Link(True, REMOTE_SWITCH)
    return ports


def _named(profile: Profile, buses: list[str], ports: list[list[Link]]) -> None:
    """Connect the links that the profile lists by number."""
    for gpu, number, end in profile.nvlink.ports:
        cable = _cable_end(end)
        if cable is not None:
            _join(ports, buses, (gpu, number), cable)
        else:
            kind = REMOTE_GPU if end in buses else REMOTE_SWITCH
            ports[gpu][number] = Link(True, kind, None if end == HIDDEN else end)


def _join(ports: list[list[Link]], buses: list[str], one: tuple[int, int], other: tuple[int, int]) -> None:
    ports[one[0]][one[1]] = Link(True, REMOTE_GPU, buses[other[0]], other)
    ports[other[0]][other[1]] = Link(True, REMOTE_GPU, buses[one[0]], one)


def _switched(profile: Profile) -> Iterator[tuple[tuple[int, ...], dict[str, int]]]:
    yield tuple(range(len(gpus_of(profile)))), profile.nvlink.switches
    for board in profile.nvlink.boards:
        yield board.gpus, board.switches


def _cable_end(end: str) -> tuple[int, int] | None:
    """(1, 3) of ``gpu 1 link 3``, None for every other far end."""
    found = CABLE_END.fullmatch(end)
    return (int(found[1]), int(found[2])) if found else None


def _used(profile: Profile, count: int) -> list[int]:
    """Return how many links each GPU needs."""
    used = [profile.nvlink.hidden_switch_links] * count
    for a, b, links in profile.nvlink.pairs:
        used[a] += links
        used[b] += links
    for gpus, switches in _switched(profile):
        for gpu in gpus:
            _check_gpu(gpu, count, "nvlink.boards")
            used[gpu] += sum(switches.values())
    for gpu, _, end in profile.nvlink.ports:
        cable = _cable_end(end)
        for at in (gpu, cable[0]) if cable else (gpu,):
            used[at] += 1
    return used


def _check_switch(profile: Profile, switch: str) -> None:
    device = next((device for device in profile.devices if device.bus_id == switch), None)
    part = part_of(device, profile) if device else None
    if not isinstance(part, Part) or part.kind != "nvswitch":
        raise ValueError(f"nvlink.switches {switch}: there is no NVSwitch with this bus id")


def _check_gpu(gpu: int, count: int, where: str) -> None:
    if not 0 <= gpu < count:
        raise ValueError(f"{where}: there is no GPU {gpu}; there are GPUs 0 to {count - 1}")


def _check_ports(profile: Profile, count: int) -> None:
    """Check that each port is listed once and exists; a cable also uses the port at its other end."""
    has = [model.nvlink.links if model.nvlink else 0 for model in models_of(profile)]
    buses = {device.bus_id for device in profile.devices}
    taken: set[tuple[int, int]] = set()
    for gpu, link, end in profile.nvlink.ports:
        where = f"nvlink.ports [{gpu}, {link}, {end}]"
        cable = _cable_end(end)
        if cable is None and end != HIDDEN and end not in buses:
            raise ValueError(f"{where}: the far end is a bus id of this machine, `switch` or `gpu N link N`")
        for at in ((gpu, link), cable) if cable else ((gpu, link),):
            _check_gpu(at[0], count, where)
            if not 0 <= at[1] < has[at[0]] or at in taken:
                raise ValueError(f"{where}: GPU {at[0]} has no free link {at[1]}")
            taken.add(at)
