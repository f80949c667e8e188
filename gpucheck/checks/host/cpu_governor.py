"""CPU governor: does the CPU keep its clock up for the threads that supply the GPUs?

Source: /sys/devices/system/cpu/cpu0/cpufreq/scaling_{governor,driver}. ``powersave`` of acpi-cpufreq pins the lowest
clock; ``powersave`` of intel_pstate and amd-pstate-epp in active mode is a governor that scales, and their default.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.model import Check, Finding, Host
from gpucheck.model.finding.about import About

NAME = "cpu-governor"
CPUS = "/sys/devices/system/cpu"
FOLDER = f"{CPUS}/cpu0/cpufreq"
SCALE_THEMSELVES = ("intel_pstate", "amd-pstate-epp")
FIX = "cpupower frequency-set -g performance (permanently: the tuned profile accelerator-performance)"


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """From sysfs; None where there is no frequency scaling, as in most virtual machines, or it cannot be read.

    readable: whether sysfs shows the CPUs at all.
    """

    governor: str | None
    driver: str | None
    readable: bool = True


def probe(host: Host) -> Values:
    governor, driver = ((host.read_text(f"{FOLDER}/scaling_{name}") or "").strip() for name in ("governor", "driver"))
    readable = bool(governor) or bool(host.list_names(CPUS))
    return Values(governor=governor or None, driver=driver or None, readable=readable)


def evaluate(values: Values) -> Iterator[Finding]:
    governor, driver = values.governor, values.driver
    evidence = f"{FOLDER}: governor {governor or 'not reported'}, driver {driver or 'not reported'}"
    about = About(check=NAME, evidence=(evidence,))
    if not values.readable:
        why = f"CPU governor unknown: {CPUS} cannot be read"
        yield about.unknown(why, "run on the host, or mount /sys read-only into the container")
    elif governor is None:
        yield about.skips("not applicable: the kernel does not scale the CPU clock (virtual machine or firmware)")
    elif governor == "powersave" and driver is None:
        why = f"effect of the CPU governor powersave unknown: {FOLDER}/scaling_driver cannot be read"
        yield about.unknown(why, f"cat {FOLDER}/scaling_driver")
    elif governor == "powersave" and driver not in SCALE_THEMSELVES:
        why = "The CPUs stay at their lowest clock: kernel launches, data loading and host copies are slow."
        yield about.warns(f"CPU governor {governor}", "performance or schedutil", why, FIX, "cpu-clock-low")
    else:
        yield about.passes(f"CPU governor {governor} ({driver})" if driver else f"CPU governor {governor}")


CHECK = Check(NAME, frozenset({"software", "settings", "quick"}), probe, evaluate)
