"""``driver: keep``: the driver that a host has, which its set is chosen for and which no plan changes.

Its packages, files and services, the fabric manager and the kernel's arguments stay as they are: the archive's driver,
a runfile, the image of a vendor.
"""

import re
from collections.abc import Iterator

from gpucheck.stack.facts import HostFacts
from gpucheck.stack.rules.driver import Flavour
from gpucheck.stack.types import KEEP, Clash, DriverChoice, Fact, Reason, StackSpec, Target

VERSION = re.compile(r"\d{3}(\.\d{1,3}){1,2}")
STATED = "the specification"
WAY = "install a driver of your own, and run again; or state a driver in stack.yml, which gpucheck installs"
# Keys of stack.yml that belong to the driver, with what they are without a statement.
OF_THE_DRIVER = {"kernel_module": "auto", "gdrcopy": "none", "driver_extra": (), "module_options": {}, "kernel": "keep"}
# A repository of NVIDIA's has the driver as well: these stay away from the system's own upgrades.
KEPT_PIN = """# The driver is your own (driver: keep in stack.yml): none comes from NVIDIA's repository.
Package: nvidia-container-toolkit* libnvidia-container*
Pin: version *
Pin-Priority: 500

Package: nvidia-* libnvidia-* libcuda1 cuda-drivers* firmware-nvidia-* libxnvctrl* xserver-xorg-video-nvidia*
Pin: release o=NVIDIA
Pin-Priority: -1
"""
KEPT_EXCLUDE = (
    "nvidia-driver* nvidia-open* kmod-nvidia* nvidia-kmod* nvidia-fabric* nvidia-persistenced nvidia-modprobe "
    "nvidia-settings nvidia-xconfig libnvidia-cfg* libnvidia-fbc* libnvidia-gpucomp* libnvidia-ml* libnvidia-nscq* "
    "libnvsdm* cuda-drivers* nvidia-imex* xorg-x11-nvidia"
)


def present_driver(host: HostFacts) -> DriverChoice | str:
    """Return the driver of a host, or why it cannot be kept."""
    seen = host.driver
    version, flavour = seen.loaded_version or seen.installed_version, seen.loaded_flavour or seen.installed_flavour
    if not version or flavour not in ("open", "proprietary"):
        return f"{host.host} has no NVIDIA driver that could be kept: no module is loaded and none is installed"
    if not VERSION.fullmatch(version):
        return f"the version of the driver of {host.host} is {version[:40]!r}"
    if seen.loaded_version and seen.installed_version and seen.loaded_version != seen.installed_version:
        return (
            f"driver {seen.loaded_version} is loaded on {host.host} and {seen.installed_version} is installed: the "
            "next boot changes it"
        )
    kind: Flavour = "open" if flavour == "open" else "proprietary"
    return DriverChoice(branch=version.partition(".")[0], version=version, kernel_module=kind, kept=True)


def kept(target: Target, spec: StackSpec) -> Iterator[tuple[DriverChoice, tuple[Reason, ...]]]:
    if spec.driver == KEEP and target.present:
        text = "the driver of the hosts, which is kept: its packages, services and fabric manager are not managed"
        yield target.present, (Reason(component="driver", because=text, source="the facts"),)


def nothing_to_keep(target: Target) -> Iterator[Clash]:
    if target.present is None:
        because = "driver: keep plans for the driver that a host has, and no host was read"
        between = (Fact("driver: keep is requested", STATED), Fact("the driver is not known", "the facts"))
        way = "give the facts of the hosts (gpucheck stack lock --facts), or state a driver"
        yield Clash(component="driver", rule="", between=between, because=because, way=way)


def contradictions(spec: StackSpec) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the stated keys that would change the driver."""
    if spec.driver != KEEP:
        return
    because = "it belongs to the driver, which keep does not change. Leave it out, or state a driver"
    for key, unset in OF_THE_DRIVER.items():
        if getattr(spec, key) != unset:
            yield ("driver", key), because
    if spec.source not in ("auto", "nvidia"):
        yield ("driver", "source"), f"{spec.source} is where the driver comes from. Leave it out, or state a driver"
    if spec.mok.key:
        yield ("driver", "mok"), because
    if spec.imex.service != "none":
        yield ("driver", "imex"), because
    if spec.tuning.iommu != "leave":
        yield ("driver", "tuning"), "iommu changes the kernel's arguments, which keep does not. Leave it out"
