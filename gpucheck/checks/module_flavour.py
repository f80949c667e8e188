"""Module flavour: do the loaded kernel modules serve the generation of these GPUs?

Sources: the banner of /proc/driver/nvidia/version, or the licence of the installed module where none is loaded;
NVIDIA's driver installation guide: Blackwell and Grace need the open modules, GPUs before Turing the proprietary ones.
With the wrong flavour the module binds no GPU.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.checks._nvml import no_gpu_on_the_bus
from gpucheck.knowledge import generation_of, gpu_by_pci_id
from gpucheck.model import Check, DriverState, Finding, Host, PciDevice
from gpucheck.model.about import About

NAME = "module-flavour"


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs on the bus, and the driver's kernel side."""

    gpus: tuple[PciDevice, ...]
    driver: DriverState


def probe(host: Host) -> Values:
    """Ask the PCI bus and the kernel."""
    return Values(gpus=tuple(device for device in host.pci() if device.is_nvidia_gpu), driver=host.driver())


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding for each GPU that the flavour does not serve, else one for the host."""
    flavour = values.driver.loaded_flavour or values.driver.installed_flavour
    about = About(
        check=NAME,
        evidence=(
            f"loaded: {values.driver.loaded_version} {values.driver.loaded_flavour}",
            f"installed: {values.driver.installed_version} {values.driver.installed_flavour}",
        ),
    )
    if not values.gpus:
        yield no_gpu_on_the_bus(NAME)
        return
    if flavour is None:
        yield about.skips("no NVIDIA module is loaded or installed (see the driver check)")
        return
    wrong = [(gpu, needed) for gpu in values.gpus if (needed := needed_flavour(gpu)) not in ("either", flavour)]
    for gpu, needed in wrong:
        finding = About(check=NAME, subject=f"gpu:{gpu.bus_id}", evidence=about.evidence)
        why = f"this generation needs the {needed} modules: the {flavour} ones load and do not bind it"
        fix = f"gpucheck stack plan names the {needed} packages of the same branch; install them and reboot"
        yield finding.fails(flavour, needed, why, fix, "module-flavour-wrong")
    if not wrong:
        yield about.passes(flavour)


def needed_flavour(gpu: PciDevice) -> str:
    """``open``, ``proprietary``, or ``either``, also where the id is in no table."""
    model = gpu_by_pci_id(gpu.device_id)
    if model is not None:
        return model.kernel_module
    generation = generation_of(gpu.device_id)
    return generation.kernel_module if generation is not None else "either"


CHECK = Check(NAME, frozenset({"software", "quick"}), probe, evaluate)
