"""A PCIe tree with GPUs below a switch, and a host of it."""

import msgspec

from gpucheck.model import AcsControl, AerCounts, PciDevice, PcieLink
from tests.checks.judging import with_health
from tests.fakes import SYSTEM, facts
from tests.machines import p100, reading

GEN4 = PcieLink(generation=4, width=16, max_generation=4, max_width=16)
ROOT, UP, DOWN0, DOWN1 = "0000:00:01.0", "0000:01:00.0", "0000:02:00.0", "0000:02:01.0"
IDLE = AcsControl(capability=0x5F, control=0)


def bridge(bus_id, kind, *path, **more):
    fields = {"acs": IDLE, "config_readable": True, "link": GEN4, "aer": AerCounts(correctable=0, non_fatal=0, fatal=0)}
    return PciDevice(
        bus_id=bus_id, vendor_id="1000", device_id="c010", class_id="060400", kind=kind, path=path, **(fields | more)
    )


def gpu(bus_id, down, **more):
    fields = {"link": GEN4, "iommu_group": "30", "iommu_type": "identity", "numa_node": 0}
    return PciDevice(
        bus_id=bus_id, vendor_id="10de", device_id="15f8", class_id="030200", path=(ROOT, UP, down), **(fields | more)
    )


def tree(**changes):
    """Two GPUs below one switch; changes: fields of a function by its name."""
    functions = {
        "root": bridge(ROOT, "root-port"),
        "up": bridge(UP, "switch-upstream", ROOT),
        "down0": bridge(DOWN0, "switch-downstream", ROOT, UP),
        "down1": bridge(DOWN1, "switch-downstream", ROOT, UP),
        "gpu0": gpu("0000:03:00.0", DOWN0),
        "gpu1": gpu("0000:04:00.0", DOWN1),
    }
    return tuple(msgspec.structs.replace(f, **changes.get(name, {})) for name, f in functions.items())


NODES = "/sys/devices/system/node"
TWO_NODES = {NODES: ("node0", "node1", "online")}


def host(pci, uptime="36000.00 1.0", folders=TWO_NODES, errors=None, gaps=(), **system):
    gpus = [with_health(p100(n), **({"pcie_errors": errors} if errors else {})) for n in range(2)]
    nvml = reading(*(msgspec.structs.replace(g, cpu_affinity="0-15") for g in gpus))
    lists = {f"{NODES}/node0/cpulist": "0-15\n", f"{NODES}/node1/cpulist": "16-31\n"}
    return facts(
        nvml=msgspec.structs.replace(nvml, gaps=gaps),
        pci=pci,
        system=msgspec.structs.replace(SYSTEM, **system),
        files={"/proc/uptime": uptime, "/proc/cmdline": "ro quiet", **lists},
        folders=folders,
    )
