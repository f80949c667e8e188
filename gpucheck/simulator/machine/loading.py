"""Load profiles, by name from ``profiles/`` or from a file, and validate that their machine is possible.

Loading is strict: an unknown key, a bus id on the wrong bus or a link to nowhere is an error with file, key and reason.
"""

from pathlib import Path

import msgspec

from gpucheck.foreign.documents import parse
from gpucheck.simulator.data import HERE, is_file, profile_text, read, unknown
from gpucheck.simulator.machine import check_nvlinks
from gpucheck.simulator.machine.profile import BUS_ID, Profile, ProfileDevice, cpus, part_of


def profile_names() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (HERE / "profiles").glob("*.yml")))


def load(name: str) -> Profile:
    """Return a profile by its name or file, validated.

    Raises LookupError for an unknown name, ValueError for a broken file, OSError for one that cannot be read.
    """
    if is_file(name):
        own = parse(profile_text(name), name, Profile)
        check(own, Path(name))
        return msgspec.structs.replace(own, name=own.name or Path(name).stem)
    if name not in profile_names():
        raise LookupError(unknown("profile", name, profile_names()))
    path = HERE / "profiles" / f"{name}.yml"
    profile = msgspec.structs.replace(read(path, Profile), name=name)
    check(profile, path)
    return profile


def check(profile: Profile, path: Path) -> None:
    """Raise ValueError naming the file, the key and the reason, if the parts do not fit together."""
    try:
        check_profile(profile)
    except (LookupError, ValueError) as error:
        raise ValueError(f"{path.name}: {error.args[0]}") from error


def check_profile(profile: Profile) -> None:
    """The same for a profile that is in no file. Raises LookupError or ValueError naming the key and the reason."""
    _check_platform(profile)
    _check_roots(profile)
    _check_devices(profile)
    check_nvlinks(profile)


def _check_platform(profile: Profile) -> None:
    if profile.cpu is not None and profile.cpu not in cpus():
        raise LookupError(f"cpu: {unknown('CPU', profile.cpu, tuple(sorted(cpus())))}")
    nodes = len(profile.numa_nodes)
    if profile.sockets is not None and (profile.sockets < 1 or nodes % profile.sockets):
        raise ValueError(f"sockets: {nodes} NUMA nodes cannot be spread over {profile.sockets} sockets")
    if not profile.driver.version or "/" in profile.driver.version:
        raise ValueError(f"driver.version: {profile.driver.version!r} is not a driver version")


def _check_roots(profile: Profile) -> None:
    if not profile.numa_nodes:
        raise ValueError("numa_nodes: at least one CPU list is needed")
    for name, root in profile.roots.items():
        if not BUS_ID.fullmatch(f"{name}:00.0"):
            raise ValueError(f"roots {name}: a root bus is written like 0000:3a, in quotes")
        if root.numa_node is not None and root.numa_node not in range(len(profile.numa_nodes)):
            raise ValueError(
                f"roots {name}: numa_node {root.numa_node} does not exist: there are {len(profile.numa_nodes)} nodes"
            )


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


def _check_place(device: ProfileDevice, devices: dict[str, ProfileDevice], profile: Profile, where: str) -> None:
    part = part_of(device, profile)
    kind = part.kind
    if kind == "nic" and part.class_id is None:
        raise ValueError(f"{where}: part {device.part} is a network card without class_id")
    if device.memory_node is not None and device.memory_node < len(profile.numa_nodes):
        raise ValueError(f"{where}: memory_node {device.memory_node} is a node of CPUs")
    if device.under in profile.roots:
        if device.bus_id[:7] != device.under:
            raise ValueError(f"{where}: is not on root bus {device.under}")
        return
    if device.under not in devices:
        raise ValueError(f"{where}: under {device.under}, which is neither a root bus nor a device")
    above = part_of(devices[device.under], profile).kind
    fitting = ("switch-upstream",) if kind == "switch-downstream" else ("root-port", "switch-downstream")
    if kind == "root-port" or above not in fitting:
        raise ValueError(f"{where}: a {kind} cannot be under a {above}")
    if device.bus_id[:7] <= device.under[:7]:
        raise ValueError(f"{where}: its bus must come after the bus of {device.under}")
