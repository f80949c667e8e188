"""Is the machine that a profile describes one that could be built? Everything here refuses, nothing repairs."""

from pathlib import Path

from gpucheck.simulator.profile import BUS_ID, Bridge, Device, GpuModel, Profile, bridges, gpu_model


def check(profile: Profile, path: Path) -> None:
    """Raise ValueError naming the file, the key and the reason, if the parts do not fit together."""
    try:
        _check_roots(profile)
        _check_devices(profile)
        _check_nvlinks(profile)
    except (LookupError, ValueError) as error:
        raise ValueError(f"{path.name}: {error.args[0]}") from error


def part_of(device: Device) -> Bridge | GpuModel:
    """The part or the GPU model that a device is. Raises ValueError if it is neither or both."""
    if (device.part is None) == (device.gpu is None):
        raise ValueError(f"devices {device.bus_id}: exactly one of `part` and `gpu` is needed")
    if device.gpu is not None:
        return gpu_model(device.gpu)
    if device.part not in bridges():
        raise ValueError(f"devices {device.bus_id}: part {device.part!r} is not in bridges.yml")
    return bridges()[device.part]


def gpus_of(profile: Profile) -> tuple[Device, ...]:
    """The GPUs in NVML's order, which is the order of their bus ids."""
    return tuple(sorted((d for d in profile.devices if d.gpu is not None), key=lambda d: d.bus_id))


def _check_roots(profile: Profile) -> None:
    if not profile.numa_nodes:
        raise ValueError("numa_nodes: at least one CPU list is needed")
    for name, root in profile.roots.items():
        if not BUS_ID.fullmatch(f"{name}:00.0"):
            raise ValueError(f"roots {name}: a root bus is written like 0000:3a, in quotes")
        if root.numa_node is not None and root.numa_node not in range(len(profile.numa_nodes)):
            raise ValueError(f"roots {name}: numa_node {root.numa_node} is none of {len(profile.numa_nodes)} nodes")


def _check_devices(profile: Profile) -> None:
    devices = {device.bus_id: device for device in profile.devices}
    if len(devices) != len(profile.devices):
        raise ValueError("devices: a bus id is used twice")
    buses: dict[str, str] = {}
    for device in profile.devices:
        where = f"devices {device.bus_id}"
        if not BUS_ID.fullmatch(device.bus_id):
            raise ValueError(f"{where}: a bus id is written like 0000:3b:00.0, in lower case and in quotes")
        _check_place(device, devices, profile, where)
        bus = device.bus_id[:7]
        if buses.setdefault(bus, device.under) != device.under:
            raise ValueError(f"{where}: bus {bus} is under {buses[bus]} and under {device.under}")


def _check_place(device: Device, devices: dict[str, Device], profile: Profile, where: str) -> None:
    part = part_of(device)
    kind = part.kind if isinstance(part, Bridge) else "gpu"
    if device.under in profile.roots:
        if device.bus_id[:7] != device.under:
            raise ValueError(f"{where}: is not on root bus {device.under}")
        return
    if device.under not in devices:
        raise ValueError(f"{where}: under {device.under}, which is neither a root bus nor a device")
    parent = part_of(devices[device.under])
    above = parent.kind if isinstance(parent, Bridge) else "gpu"
    fitting = ("switch-upstream",) if kind == "switch-downstream" else ("root-port", "switch-downstream")
    if kind == "root-port" or above not in fitting:
        raise ValueError(f"{where}: a {kind} cannot be under a {above}")
    if device.bus_id[:7] <= device.under[:7]:
        raise ValueError(f"{where}: its bus must come after the bus of {device.under}")


def _check_nvlinks(profile: Profile) -> None:
    gpus = gpus_of(profile)
    kinds = {d.bus_id: part_of(d) for d in profile.devices}
    used = [sum(profile.nvlink.switches.values()) + profile.nvlink.hidden_switch_links] * len(gpus)
    for switch in profile.nvlink.switches:
        part = kinds.get(switch)
        if not isinstance(part, Bridge) or part.kind != "nvswitch":
            raise ValueError(f"nvlink.switches {switch}: there is no NVSwitch with this bus id")
    for a, b, links in profile.nvlink.pairs:
        if a == b or not (0 <= a < len(gpus) and 0 <= b < len(gpus)) or links < 1:
            raise ValueError(f"nvlink.pairs [{a}, {b}, {links}]: needs two of GPUs 0 to {len(gpus) - 1} and some links")
        used[a] += links
        used[b] += links
    for index, device in enumerate(gpus):
        model = gpu_model(device.gpu or "")
        links = model.nvlink.links if model.nvlink else 0
        if used[index] > links:
            raise ValueError(f"nvlink: GPU {index} would need {used[index]} links, {model.name} has {links}")
