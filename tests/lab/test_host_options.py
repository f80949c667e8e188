"""What a site asks for beside the stack, on both hosts: on, found unchanged, repaired, off again, and gone.

The tests run in the order they stand in: each needs the state of the one before.
"""

import re

import msgspec
import pytest
import yaml

from gpucheck.stack.settings import RECOMMENDED
from tests.lab.e2e import HOSTS, INVENTORY, boots, installed, make, on_host, provision_json, specified, with_spec

pytestmark = pytest.mark.more_labs

FILES = {
    "/etc/sysctl.d/90-gpucheck.conf": "-kernel.numa_balancing = 0",
    "/etc/tmpfiles.d/gpucheck-tuning.conf": "w /sys/kernel/mm/transparent_hugepage/enabled - - - - madvise",
    "/etc/security/limits.d/90-gpucheck.conf": "* - memlock unlimited",
    "/etc/systemd/system.conf.d/90-gpucheck.conf": "DefaultLimitMEMLOCK=infinity",
}
# There before us: what a file of ours replaces comes back when ours goes.
SITES_OWN = "# the site's own\nvm.swappiness = 10"


# What stack.yml calls recommended, and a key that no engine's kernel has at this value by itself.
TUNING = {**msgspec.to_builtins(RECOMMENDED), "sysctl": {"vm.swappiness": "11"}}


OPTIONS = {"dcgm": "auto", "module_options": {"NVreg_RestrictProfilingToAdminUsers": "0"}}
MODULE_FILE = "/etc/modprobe.d/gpucheck-nvidia.conf"
THEIRS = "bash"


def dcgm(host: str) -> tuple[str, list[str]]:
    """Whether its service runs, and its packages."""
    runs = on_host(host, "sh", "-c", "systemctl is-active nvidia-dcgm || :")
    return runs, sorted(row.split()[0] for row in installed(host) if row.startswith("datacenter-gpu-manager"))


def tuned(host: str) -> dict[str, str]:
    """Those of the files that are there, with their content."""
    script = 'for f in "$@"; do if [ -e "$f" ]; then printf "%s\\0%s\\0" "$f" "$(cat "$f")"; fi; done'
    words = on_host(host, "sh", "-c", script, "sh", *FILES).split("\0")
    return dict(zip(words[::2], words[1::2], strict=False))


def state(reports, host: str) -> str:
    return str(provision_json(reports)["hosts"][host]["state"])


@pytest.fixture(scope="module")
def spec(first):
    with specified(tuning=TUNING, **OPTIONS) as path:
        yield path


@pytest.fixture(scope="module")
def on(spec, reports):
    """The run that tunes both hosts; provisioned they are already, or again where a test before took that away."""
    on_host("lab-apt", "sh", "-c", f'mkdir -p /etc/sysctl.d; echo "{SITES_OWN}" >/etc/sysctl.d/90-gpucheck.conf')
    on_host("lab-apt", "apt-mark", "hold", THEIRS)
    return with_spec(reports, args="--skip-tags verify")


def test_tuning_writes_what_outlives_a_boot_and_says_what_a_container_leaves(on, reports):
    assert on.status == 0, on.text
    for host in HOSTS:
        content = tuned(host)
        assert list(content) == list(FILES)
        for path, line in FILES.items():
            assert line in content[path].splitlines()
        assert state(reports, host) == "changed"
        assert f"{host}: written for the next boot, not applied to the running kernel:" in on.plain
    # The kernel is the engine's: what it has is said, nothing was forced.
    words = r"vm\.swappiness stays \d+: a container cannot change its host's kernel; set it on the host"
    assert len(re.findall(words, on.plain)) == len(HOSTS)


def test_dcgm_runs_and_the_module_has_its_options(on):
    for host in HOSTS:
        assert on_host(host, "cat", MODULE_FILE) == "options nvidia NVreg_RestrictProfilingToAdminUsers=0"
        service, names = dcgm(host)
        assert service == "active"
        assert {"datacenter-gpu-manager-4-core", "datacenter-gpu-manager-4-proprietary"} <= set(names)
    # P100s under a driver of CUDA 13 need the packages for CUDA 12 as well; H100s do not.
    assert "datacenter-gpu-manager-4-cuda12" in dcgm("lab-apt")[1]
    assert "datacenter-gpu-manager-4-cuda12" not in dcgm("lab-dnf")[1]


def test_the_service_manager_took_the_limits_over(on):
    """Without a reboot: the limit of what starts from here on, as far as this machine grants it."""
    for host in HOSTS:
        seen = on_host(host, "systemctl", "show", "--no-pager", "-p", "DefaultLimitMEMLOCK", "-p", "DefaultLimitNOFILE")
        assert seen.splitlines() == ["DefaultLimitNOFILE=1048576", "DefaultLimitMEMLOCK=infinity"]


def test_a_second_run_changes_nothing(on, reports):
    before = {host: boots(host) for host in HOSTS}

    run = with_spec(reports, args="--skip-tags verify")

    assert run.status == 0, run.text
    for host in HOSTS:
        assert run.recap(host)["changed"] == 0
        assert state(reports, host) == "unchanged"
    assert {host: boots(host) for host in HOSTS} == before


def test_a_setting_that_somebody_changed_is_planned_and_put_back(on, reports):
    path = "/etc/security/limits.d/90-gpucheck.conf"
    on_host("lab-dnf", "sh", "-c", f"echo '* - memlock 64' >{path}")

    planned = with_spec(reports, "plan")
    assert f"tuning: {path} is missing or different" in planned.plain
    assert tuned("lab-dnf")[path] == "* - memlock 64"

    run = with_spec(reports, args="--skip-tags verify")
    assert run.status == 0, run.text
    assert FILES[path] in tuned("lab-dnf")[path]
    assert (state(reports, "lab-apt"), state(reports, "lab-dnf")) == ("unchanged", "changed")


def test_without_the_spec_the_files_go_and_the_sites_own_comes_back(on, spec, reports):
    content = yaml.safe_load(spec.read_text())
    off = {"tuning": "none", "dcgm": "none", "module_options": "none"}
    spec.write_text(yaml.safe_dump({**content, **off}))

    run = with_spec(reports, args="--skip-tags verify")

    assert run.status == 0, run.text
    assert tuned("lab-apt") == {"/etc/sysctl.d/90-gpucheck.conf": SITES_OWN}
    assert tuned("lab-dnf") == {}
    for host in HOSTS:
        assert dcgm(host) == ("inactive", [])
        assert on_host(host, "sh", "-c", f"ls {MODULE_FILE} 2>/dev/null || echo none") == "none"
    assert THEIRS in on_host("lab-apt", "apt-mark", "showhold").split()
    spec.write_text(yaml.safe_dump(content))


def test_deprovision_takes_the_tuning_along(on, spec, reports):
    assert with_spec(reports, args="--skip-tags verify").status == 0
    assert list(tuned("lab-dnf")) == list(FILES)

    run = make("deprovision", reports, inventory=INVENTORY, CONFIRM="yes")

    assert run.status == 0, run.text
    assert tuned("lab-dnf") == {}
    assert tuned("lab-apt") == {"/etc/sysctl.d/90-gpucheck.conf": SITES_OWN}
    assert dcgm("lab-apt") == dcgm("lab-dnf") == ("inactive", [])
    assert on_host("lab-apt", "apt-mark", "showhold") == THEIRS
    on_host("lab-apt", "apt-mark", "unhold", THEIRS)
    on_host("lab-apt", "rm", "/etc/sysctl.d/90-gpucheck.conf")
