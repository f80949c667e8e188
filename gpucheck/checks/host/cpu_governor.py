"""CPU governor: does the CPU keep its clock up for the threads that supply the GPUs?

Source: /sys/devices/system/cpu/cpu0/cpufreq/scaling_{governor,driver}. ``powersave`` of acpi-cpufreq pins the lowest
clock; ``powersave`` of intel_pstate and amd-pstate-epp in active mode is a governor that scales, and their default.
"""

from collections.abc import Iterator

from gpucheck.knowledge.codes import Subject
from gpucheck.model import Check, Finding
from gpucheck.model.facts import Facts

NAME = "cpu-governor"
CPUS = "/sys/devices/system/cpu"
FOLDER = f"{CPUS}/cpu0/cpufreq"
GOVERNOR, DRIVER = f"{FOLDER}/scaling_governor", f"{FOLDER}/scaling_driver"
SCALE_THEMSELVES = ("intel_pstate", "amd-pstate-epp")


def _read(facts: Facts, path: str) -> str:
    return (facts.texts[path] or "").strip()


def evaluate(facts: Facts) -> Iterator[Finding]:
    governor, driver = _read(facts, GOVERNOR), _read(facts, DRIVER)
    evidence = f"{FOLDER}: governor {governor or 'not reported'}, driver {driver or 'not reported'}"
    subject = Subject(check=NAME, evidence=(evidence,))
    if not governor and not facts.folders[CPUS]:
        yield subject.unknown("host.cpus-unreadable", path=CPUS)
    elif not governor:
        yield subject.skips("host.cpu-clock-fixed")
    elif governor == "powersave" and not driver:
        yield subject.unknown("host.cpu-driver-unreadable", path=DRIVER)
    elif governor == "powersave" and driver not in SCALE_THEMSELVES:
        yield subject.warns("host.cpu-clock-low", f"CPU governor {governor}", "performance or schedutil")
    else:
        yield subject.passes(f"CPU governor {governor} ({driver})" if driver else f"CPU governor {governor}")


CHECK = Check(
    NAME,
    frozenset({"software", "settings", "quick"}),
    evaluate=evaluate,
    needs=(f"text:{GOVERNOR}", f"text:{DRIVER}"),
    # Whether sysfs shows the CPUs at all matters where there is no frequency scaling, as in most guests.
    more=lambda facts: () if _read(facts, GOVERNOR) else (f"folder:{CPUS}",),
)
