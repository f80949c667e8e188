"""What the devices of a profile are: a part of parts.yml, a GPU model, or a product that only the profile has."""

from gpucheck.simulator.data import unknown
from gpucheck.simulator.machine.gpu_model import GpuModel, gpu_model
from gpucheck.simulator.machine.profile import Device, Part, Profile, parts


def part_of(device: Device, profile: Profile) -> Part | GpuModel:
    """The part or the GPU model that a device is. Raises LookupError or ValueError if it is neither or both."""
    if (device.part is None) == (device.gpu is None):
        raise ValueError(f"devices {device.bus_id}: exactly one of `part` and `gpu` is needed")
    if device.gpu is not None:
        return profile.models.get(device.gpu) or gpu_model(device.gpu)
    known = profile.parts | parts()
    if device.part not in known:
        raise LookupError(f"devices {device.bus_id}: {unknown('part', str(device.part), tuple(sorted(known)))}")
    return known[device.part]


def models_of(profile: Profile) -> list[GpuModel]:
    """The model of each GPU, in NVML's order."""
    return [part for part in (part_of(device, profile) for device in gpus_of(profile)) if isinstance(part, GpuModel)]


def gpus_of(profile: Profile) -> tuple[Device, ...]:
    """The GPUs in NVML's order, which is the order of their bus ids."""
    return tuple(sorted((d for d in profile.devices if d.gpu is not None), key=lambda d: d.bus_id))
