"""Settings of stack.yml that choose no version: in the plan only if requested. What each adds: golden/specs.yml."""

import fnmatch

import pytest

from gpucheck.stack.settings.tuning import RECOMMENDED, Tuning, tuning_plan
from gpucheck.stack.spec import parse_spec
from tests.stack.asked import planned


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kernel: keep",
        "kernel_lock: leave",
        "mok: none",
        "module_options: none",
        "module_options: {}",
        "driver_extra: none",
        "driver_extra: []",
        "dcgm: none\ngdrcopy: none",
        "imex: none",
        *("tuning: none", "tuning: auto", "tuning: {}", "tuning: {nofile: leave}"),
    ],
)
def test_setting_that_requests_nothing_leaves_the_plan_unchanged(text):
    assert planned(text, "ubuntu-22.04") == planned("driver: auto\n", "ubuntu-22.04")


def test_the_recommended_set_is_the_one_that_stack_yml_shows():
    assert parse_spec("tuning: recommended\n", "stack.yml").tuning == RECOMMENDED
    shown = "numa_balancing: off, transparent_hugepages: madvise, memlock: unlimited, nofile: 1048576"
    assert parse_spec(f"tuning: {{{shown}, governor: performance}}\n", "stack.yml").tuning == RECOMMENDED


def test_every_cpu_gets_the_governor():
    (row,) = tuning_plan(Tuning(governor="performance"))["live"]

    assert fnmatch.fnmatch("/sys/devices/system/cpu/cpu17/cpufreq/scaling_governor", row["path"])
