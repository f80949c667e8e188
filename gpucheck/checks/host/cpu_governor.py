"""CPU governor: does the CPU keep its clock up for the threads that supply the GPUs?

Source: /sys/devices/system/cpu/cpu0/cpufreq/scaling_{governor,driver}. ``powersave`` of acpi-cpufreq pins the lowest
clock; ``powersave`` of intel_pstate and amd-pstate-epp in active mode is a governor that scales, and their default.
"""

from collections.abc import Iterator

import msgspec

from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, Finding, Host

NAME = "cpu-governor"
CPUS = "/sys/devices/system/cpu"
FOLDER = f"{CPUS}/cpu0/cpufreq"
SCALE_THEMSELVES = ("intel_pstate", "amd-pstate-epp")


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
    subject = Subject(check=NAME, evidence=(evidence,))
    if not values.readable:
        yield subject.unknown("host.cpus-unreadable", path=CPUS)
    elif governor is None:
        yield subject.skips("host.cpu-clock-fixed")
    elif governor == "powersave" and driver is None:
        yield subject.unknown("host.cpu-driver-unreadable", path=f"{FOLDER}/scaling_driver")
    elif governor == "powersave" and driver not in SCALE_THEMSELVES:
        yield subject.warns("host.cpu-clock-low", f"CPU governor {governor}", "performance or schedutil")
    else:
        yield subject.passes(f"CPU governor {governor} ({driver})" if driver else f"CPU governor {governor}")


CHECK = Check(NAME, frozenset({"software", "settings", "quick"}), probe, evaluate)
