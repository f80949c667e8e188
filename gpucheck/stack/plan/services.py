"""The services of a plan, and the drop-ins that keep them quiet on a machine without an NVIDIA device.

A golden image starts the same units on nodes without GPUs, where each of the daemons ends with an error and leaves the
machine degraded. The condition asks for the hardware: PCI devices are there before the first unit starts. A trace of
the driver (/dev/nvidiactl, /sys/module/nvidia) would not do: udev loads the module while units start, a condition is
looked at once, and a GPU host would now and then come up without persistence or fabric.
"""

from collections.abc import Iterator
from typing import Any

from gpucheck.knowledge.tables import OperatingSystem
from gpucheck.stack.components import BY_TURN
from gpucheck.stack.spec import StackSpec
from gpucheck.stack.stack_set import StackSet

UNITS = "/etc/systemd/system"
NVIDIA = "0x10de"
SIMULATED_ROOT = "/run/gpucheck-simulator/root"
PROBE = f"{UNITS}/gpucheck-hardware.service"
# In a folder that a reboot clears, so that it speaks of this boot's hardware.
FOUND = "/run/gpucheck/nvidia-device"
HEAD = "# Written by gpucheck: quiet where there is no NVIDIA device, patient where the driver comes up late.\n"
# The module may still be loading when the daemon is first started. Twelve attempts take a minute at least; what fails
# then is no race, and the unit says so as failed. The limit is counted anew two minutes after the first attempt.
PATIENCE = "StartLimitIntervalSec=120\nStartLimitBurst=12\n"
RETRY = "Restart=on-failure\nRestartSec=5s\n"


def services(stack: StackSet, spec: StackSpec) -> Iterator[dict[str, Any]]:
    """The units, in the order in which they are started."""
    return (service for row in BY_TURN for service in row.services(stack, spec))


def drop_ins(names: list[str], system: OperatingSystem, *, simulated: bool) -> list[tuple[str, str]]:
    """(path, content) of one drop-in for each service, and of what they need beside.

    simulated: the hosts' hardware is the simulator's, and so is the PCI bus that is asked.
    """
    test = f"grep -qsx {NVIDIA} {SIMULATED_ROOT if simulated else ''}/sys/bus/pci/devices/*/vendor"
    if not _old_systemd(system):
        content = _unit(["After=systemd-modules-load.service"], [f"ExecCondition=/bin/sh -c '{test}'"])
        return [(_path(name), content) for name in names]
    condition = [f"ConditionPathExists={FOUND}", "Wants=gpucheck-hardware.service"]
    condition += ["After=systemd-modules-load.service gpucheck-hardware.service"]
    return [(PROBE, _probe(test)), *((_path(name), _unit(condition, [])) for name in names)]


def _old_systemd(system: OperatingSystem) -> bool:
    """ExecCondition came with systemd 243. EL 8 has 239 and would pass over it with a warning.

    There a unit of ours looks for the device first, which a plain condition then waits for. Every other system in the
    tables has 245 or newer and needs no unit beside: the condition stands where it is read, and its failure is loud.
    """
    return system.family == "redhat" and int(system.version) <= 8


def _path(name: str) -> str:
    return f"{UNITS}/{name}.service.d/10-gpucheck.conf"


def _unit(unit: list[str], service: list[str]) -> str:
    return HEAD + "\n".join(["[Unit]", *unit, PATIENCE, "[Service]", *service, RETRY])


def _probe(test: str) -> str:
    """Runs anew with every start of a service that wants it; nobody enables it. Without a device it is no failure."""
    found = f"mkdir -p {FOUND.rpartition('/')[0]} && touch {FOUND}"
    return (
        "# Written by gpucheck: systemd 239 has no ExecCondition.\n"
        "[Unit]\nDescription=Look for NVIDIA devices on the PCI bus\n\n"
        f"[Service]\nType=oneshot\nExecStart=-/bin/sh -c '{test} && {found}'\n"
    )
