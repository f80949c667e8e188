"""The CPU frequency governor."""

import pytest

from gpucheck.checks.host import cpu_governor
from tests.checks.judging import PASS, SKIP, UNKNOWN, WARN, judge
from tests.fakes import facts


@pytest.mark.parametrize(
    ("governor", "driver", "verdict"),
    [
        ("powersave", "acpi-cpufreq", WARN),
        ("powersave", "intel_pstate", PASS),
        ("performance", "acpi-cpufreq", PASS),
        ("powersave", None, UNKNOWN),
        ("performance", None, PASS),
        (None, None, SKIP),
    ],
)
def test_a_governor_that_pins_the_lowest_clock_is_named(governor, driver, verdict):
    """powersave of intel_pstate scales by itself."""
    files = {f"{cpu_governor.FOLDER}/scaling_governor": governor, f"{cpu_governor.FOLDER}/scaling_driver": driver}
    host = facts(
        files={path: f"{text}\n" for path, text in files.items() if text},
        folders={"/sys/devices/system/cpu": ("cpu0", "online")},
    )

    (finding,) = judge(cpu_governor, host)

    assert finding.verdict is verdict
