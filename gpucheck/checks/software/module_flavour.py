"""Module flavor: do the loaded kernel modules serve the generation of these GPUs?

Sources: the banner of /proc/driver/nvidia/version, or the license of the installed module if none is loaded; NVIDIA's
driver installation guide: Blackwell and Grace need the open modules, GPUs before Turing the proprietary ones. With the
wrong flavor the module binds no GPU.
"""

from collections.abc import Iterator

from gpucheck.checks._nvml import no_gpu_on_the_bus
from gpucheck.knowledge import generation_of, gpu_by_pci_id
from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, Finding, PciDevice
from gpucheck.model.facts import Facts

NAME = "module-flavour"


def evaluate(facts: Facts) -> Iterator[Finding]:
    """One finding for each GPU that the flavor does not serve, else one for the host."""
    driver, gpus = facts.driver, [device for device in facts.pci if device.is_nvidia_gpu]
    # The installed module's only if none is loaded, or the same version: another file is not what runs.
    same = driver.loaded_version in (None, driver.installed_version)
    flavour = driver.loaded_flavour or (driver.installed_flavour if same else None)
    host = Subject(
        check=NAME,
        evidence=(
            f"loaded: {_module(driver.loaded_version, driver.loaded_flavour)}",
            f"installed: {_module(driver.installed_version, driver.installed_flavour)}",
        ),
    )
    if not gpus:
        yield no_gpu_on_the_bus(NAME)
        return
    if flavour is None and not driver.loaded_version and not driver.installed_version:
        yield host.skips("software.no-driver-module")
        return
    if flavour is None:
        yield host.unknown("software.module-flavour-unknown")
        return
    wrong = [(gpu, needed) for gpu in gpus if (needed := needed_flavour(gpu)) not in ("either", flavour)]
    for gpu, needed in wrong:
        subject = Subject(check=NAME, name=f"gpu:{gpu.bus_id}", evidence=host.evidence)
        seen = f"{flavour} kernel modules"
        yield subject.fails("software.module-flavour-wrong", seen, needed, flavour=flavour, needed=needed)
    if not wrong:
        yield host.passes(f"{flavour} kernel modules")


def _module(version: str | None, flavour: str | None) -> str:
    if version is None and flavour is None:
        return "no module"
    return f"{version or 'version unknown'}, {flavour or 'flavor unknown'}"


def needed_flavour(gpu: PciDevice) -> str:
    """``open``, ``proprietary``, or ``either``, also where the id is in no table."""
    model = gpu_by_pci_id(gpu.device_id)
    if model is not None:
        return model.kernel_module
    generation = generation_of(gpu.device_id)
    return generation.kernel_module if generation is not None else "either"


CHECK = Check(NAME, frozenset({"software", "quick"}), evaluate=evaluate, needs=("pci", "driver"))
