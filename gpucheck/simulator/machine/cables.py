"""The NVLinks of a profile: the far end of each port of each GPU."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpucheck.simulator.machine.profile import PciPart, Profile, gpus_of, models_of, part_of

# NVML: nvmlIntNvLinkDeviceType_t
REMOTE_GPU, REMOTE_SWITCH = 0, 2


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
    for gpu, (model, used) in enumerate(zip(models, _used(profile, len(models)), strict=True)):
        has = model.nvlink.links if model.nvlink else 0
        if used > has:
            raise ValueError(f"nvlink: GPU {gpu} would need {used} links, {model.name} has {has}")


def links_of(profile: Profile) -> list[list[Link]]:
    """Every port of every GPU, in NVML's order."""
    buses = [device.bus_id for device in gpus_of(profile)]
    ports = [[Link() for _ in range(m.nvlink.links if m.nvlink else 0)] for m in models_of(profile)]
    free = [iter(range(len(row))) for row in ports]
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


def _join(ports: list[list[Link]], buses: list[str], one: tuple[int, int], other: tuple[int, int]) -> None:
    ports[one[0]][one[1]] = Link(True, REMOTE_GPU, buses[other[0]], other)
    ports[other[0]][other[1]] = Link(True, REMOTE_GPU, buses[one[0]], one)


def _switched(profile: Profile) -> Iterator[tuple[tuple[int, ...], dict[str, int]]]:
    yield tuple(range(len(gpus_of(profile)))), profile.nvlink.switches
    for board in profile.nvlink.boards:
        yield board.gpus, board.switches


def _used(profile: Profile, count: int) -> list[int]:
    """Return how many links each GPU needs."""
    used = [profile.nvlink.hidden_switch_links] * count
    for a, b, links in profile.nvlink.pairs:
        used[a] += links
        used[b] += links
    for gpus, switches in _switched(profile):
        for gpu in gpus:
            if not 0 <= gpu < count:
                raise ValueError(f"nvlink.boards: there is no GPU {gpu}; there are GPUs 0 to {count - 1}")
            used[gpu] += sum(switches.values())
    return used


def _check_switch(profile: Profile, switch: str) -> None:
    device = next((device for device in profile.devices if device.bus_id == switch), None)
    part = part_of(device, profile) if device else None
    if not isinstance(part, PciPart) or part.kind != "nvswitch":
        raise ValueError(f"nvlink.switches {switch}: there is no NVSwitch with this bus id")
