"""CPU governor: does the CPU keep its clock up for the threads that feed the GPUs?

Source: /sys/devices/system/cpu/cpu0/cpufreq/scaling_{governor,driver}. ``powersave`` of acpi-cpufreq pins the lowest
clock; ``powersave`` of intel_pstate and amd-pstate-epp in active mode is a governor that scales, and their default.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.model import Check, Finding, Host
from gpucheck.model.about import About

NAME = "cpu-governor"
FOLDER = "/sys/devices/system/cpu/cpu0/cpufreq"
SCALE_THEMSELVES = ("intel_pstate", "amd-pstate-epp")
FIX = "cpupower frequency-set -g performance (and make it last: the tuned profile accelerator-performance)"


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """As the kernel says; None where there is no frequency scaling, as in most virtual machines."""

    governor: str | None
    driver: str | None


def probe(host: Host) -> Values:
    """Ask sysfs."""
    governor, driver = (host.read_text(f"{FOLDER}/scaling_{name}") for name in ("governor", "driver"))
    return Values(governor=governor.strip() if governor else None, driver=driver.strip() if driver else None)


def evaluate(values: Values) -> Iterator[Finding]:
    """One finding for the host."""
    governor, driver = values.governor, values.driver
    about = About(check=NAME, evidence=(f"{FOLDER}: governor {governor}, driver {driver}",))
    if governor is None:
        yield about.skips("the kernel scales no CPU clock here (a virtual machine, or it is left to the firmware)")
    elif governor == "powersave" and driver not in SCALE_THEMSELVES:
        why = "the CPUs stay at their lowest clock: launches, data loading and host copies are slow"
        yield about.warns(governor, "performance or schedutil", why, FIX, "cpu-clock-low")
    else:
        yield about.passes(f"{governor} ({driver})")


CHECK = Check(NAME, frozenset({"software", "settings", "quick"}), probe, evaluate)
