"""GPU count: does the PCI bus show all GPUs that a system of known build has?

Source: DMI names a few systems of which no variant has fewer GPUs, such as DGX. A GPU that does not start with the host
is neither on the PCI bus nor in NVML, and the inventory misses none.
"""

from collections.abc import Iterator

from gpucheck.checks._nvml import on_the_bus, quick_check
from gpucheck.knowledge.codes import Subject
from gpucheck.knowledge.systems import DMI_FILES, known_system
from gpucheck.model import Finding
from gpucheck.model.facts import Facts
from gpucheck.printable import counted

NAME = "gpu-count"


def evaluate(facts: Facts) -> Iterator[Finding]:
    """One finding for the host."""
    pci = on_the_bus(facts)
    system = known_system(facts.texts, [device.device_id for device in pci])
    if system is None or not system.fixed:
        yield Subject(check=NAME).skips("gpu.count-not-known")
        return
    buses = (f"sysfs: {device.bus_id} 10de:{device.device_id}" for device in pci)
    subject = Subject(check=NAME, evidence=(f"{DMI_FILES[1]}: {facts.texts[DMI_FILES[1]]}", *buses))
    seen = f"{counted(len(pci), 'GPU')} on the PCI bus"
    if len(pci) >= system.gpus:
        yield subject.passes(seen)
    else:
        yield subject.fails("gpu.fewer-than-built", seen, str(system.gpus), system=system.name, gpus=system.gpus)


CHECK = quick_check(NAME, "hardware", evaluate, ("pci", *(f"text:{path}" for path in DMI_FILES)))
