"""The services of a plan, and the drop-ins that skip them on a host without an NVIDIA device.

A golden image starts the same units on nodes without GPUs, where each daemon fails and systemd reports the host as
degraded. The condition checks the hardware: PCI devices are present before the first unit starts. A condition on the
driver (/dev/nvidiactl, /sys/module/nvidia) would not work: udev loads the module while units start, systemd evaluates
a condition only once, and a GPU host would sometimes boot without persistence or fabric.
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
# In a directory that a reboot clears, so that it describes the hardware of this boot.
FOUND = "/run/gpucheck/nvidia-device"
HEAD = "# Written by gpucheck: skipped without an NVIDIA device, restarted while the driver loads.\n"
# The module may still be loading when the daemon is first started. Twelve attempts take at least a minute; a
# later failure is not a race, and systemd shows the unit as failed. The counter restarts two minutes after the first.
PATIENCE = "StartLimitIntervalSec=120\nStartLimitBurst=12\n"
RETRY = "Restart=on-failure\nRestartSec=5s\n"


def services(stack: StackSet, spec: StackSpec) -> Iterator[dict[str, Any]]:
    """Yield the units, in the order in which they are started."""
    return (service for row in BY_TURN for service in row.services(stack, spec))


def drop_ins(names: list[str], system: OperatingSystem, *, simulated: bool) -> list[tuple[str, str]]:
    """Return (path, content) of one drop-in for each service, and of an additional unit if they need one.

    simulated: the hosts' hardware is the simulator's, and so is the PCI bus that the condition reads.
    """
    test = f"grep -qsx {NVIDIA} {SIMULATED_ROOT if simulated else ''}/sys/bus/pci/devices/*/vendor"
    if not _old_systemd(system):
        content = _unit(["After=systemd-modules-load.service"], [f"ExecCondition=/bin/sh -c '{test}'"])
        return [(_path(name), content) for name in names]
    condition = [f"ConditionPathExists={FOUND}", "Wants=gpucheck-hardware.service"]
    condition += ["After=systemd-modules-load.service gpucheck-hardware.service"]
    return [(PROBE, _probe(test)), *((_path(name), _unit(condition, [])) for name in names)]


def _old_systemd(system: OperatingSystem) -> bool:
    """Return whether systemd lacks ExecCondition, added in 243: EL 8 has 239 and ignores it with a warning.

    There a separate unit looks for the device first, and a plain condition depends on its result. Every other system in
    the tables has 245 or newer: the condition is in the drop-in itself, and its failure is logged.
    """
    return system.family == "redhat" and int(system.version) <= 8


def _path(name: str) -> str:
    return f"{UNITS}/{name}.service.d/10-gpucheck.conf"


def _unit(unit: list[str], service: list[str]) -> str:
    return HEAD + "\n".join(["[Unit]", *unit, PATIENCE, "[Service]", *service, RETRY])


def _probe(test: str) -> str:
    """Return the unit that looks for devices at each start of a service that wants it. No device is not a failure."""
    found = f"mkdir -p {FOUND.rpartition('/')[0]} && touch {FOUND}"
    return (
        "# Written by gpucheck: systemd 239 has no ExecCondition.\n"
        "[Unit]\nDescription=Look for NVIDIA devices on the PCI bus\n\n"
        f"[Service]\nType=oneshot\nExecStart=-/bin/sh -c '{test} && {found}'\n"
    )
