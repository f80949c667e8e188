"""Tuning: off unless it is asked for, and then files that hold after a boot beside what can be set at once."""

import fnmatch

from gpucheck.stack.settings.tuning import RECOMMENDED, Tuning, tuning_plan
from gpucheck.stack.spec import parse_spec


def files(tuning: Tuning) -> dict[str, str]:
    found = tuning_plan(tuning)
    assert found is not None
    return {row["path"]: row["content"] for row in found["files"]}


def test_the_recommended_set_is_the_one_that_stack_yml_shows():
    assert parse_spec("tuning: recommended\n", "stack.yml").tuning == RECOMMENDED
    shown = "numa_balancing: off, transparent_hugepages: madvise, memlock: unlimited, nofile: 1048576"
    assert parse_spec(f"tuning: {{{shown}, governor: performance}}\n", "stack.yml").tuning == RECOMMENDED


def test_every_setting_of_the_recommended_set_outlives_a_boot():
    found = files(RECOMMENDED)

    assert "-kernel.numa_balancing = 0\n" in found["/etc/sysctl.d/90-gpucheck.conf"]
    boot = found["/etc/tmpfiles.d/gpucheck-tuning.conf"]
    assert "w /sys/kernel/mm/transparent_hugepage/enabled - - - - madvise\n" in boot
    assert "scaling_governor - - - - performance\n" in boot
    logins = found["/etc/security/limits.d/90-gpucheck.conf"]
    assert "* - memlock unlimited\nroot - memlock unlimited\n" in logins
    assert (
        "[Manager]\nDefaultLimitMEMLOCK=infinity\nDefaultLimitNOFILE=1048576\n"
        in found["/etc/systemd/system.conf.d/90-gpucheck.conf"]
    )


def test_only_requested_settings_are_written():
    assert list(files(Tuning(governor="performance"))) == ["/etc/tmpfiles.d/gpucheck-tuning.conf"]
    assert list(files(Tuning(memlock="unlimited"))) == [
        "/etc/security/limits.d/90-gpucheck.conf",
        "/etc/systemd/system.conf.d/90-gpucheck.conf",
    ]


def test_a_kernel_setting_is_set_at_once_and_huge_pages_at_the_boot():
    """Of memory in pieces a kernel gives fewer than asked for, so a later run would never be content."""
    found = tuning_plan(Tuning(hugepages="64", sysctl={"vm.swappiness": "10"}))

    assert found is not None
    assert [row["path"] for row in found["live"]] == ["/proc/sys/vm/swappiness"]
    assert "-vm.nr_hugepages = 64\n-vm.swappiness = 10\n" in found["files"][0]["content"]


def test_every_cpu_gets_the_governor():
    (row,) = tuning_plan(Tuning(governor="performance"))["live"]

    assert fnmatch.fnmatch("/sys/devices/system/cpu/cpu17/cpufreq/scaling_governor", row["path"])
