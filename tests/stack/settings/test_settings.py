"""Settings of stack.yml that choose no version: in the plan only if requested. What each adds: golden/specs.yml."""

import os
import subprocess
from pathlib import Path

import pytest

from gpucheck.knowledge.packages import options
from gpucheck.model import DriverState
from gpucheck.simulator import load
from gpucheck.simulator.machine import build
from gpucheck.stack import Refusal, StackSpec
from gpucheck.stack.lock import lock, read_lock, write_lock
from gpucheck.stack.packages import text_of
from gpucheck.stack.plan import plan
from gpucheck.stack.settings import GRUB, RECOMMENDED, kernel_arguments
from gpucheck.stack.spec import SpecError, parse_spec
from tests.playbooks.stubs import script
from tests.simulator.helpers import write
from tests.stack import recordings
from tests.stack.asked import planned
from tests.stack.hosts import SYSTEMS, host


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kernel_lock: leave",
        "mok: none",
        "module_options: none",
        "module_options: {}",
        "driver_extra: none",
        "driver_extra: []",
        "dcgm: none",
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


@pytest.mark.parametrize("values", ["4096\t131072\t6291456", '"4096  131072  6291456"', "4096 131072 6291456"])
def test_several_values_of_a_kernel_setting_are_compared_as_the_kernel_shows_them(values):
    """sysctl prints them with tabs, which is what gets pasted. Such a host would never have been as planned."""
    spec = parse_spec(f"tuning:\n  sysctl:\n    net.ipv4.tcp_rmem: {values}\n", "stack.yml")

    assert spec.tuning.sysctl == {"net.ipv4.tcp_rmem": "4096 131072 6291456"}


def test_a_kernel_setting_without_a_value_is_rejected():
    """An empty line would have failed on the host, after its driver has changed."""
    with pytest.raises(SpecError, match=r"stack.yml:1: tuning.sysctl.vm.swappiness: a kernel setting needs a value"):
        parse_spec('tuning: {sysctl: {vm.swappiness: " "}}\n', "stack.yml")


@pytest.mark.parametrize("before", ["", "quiet splash"])
def test_grubs_file_adds_to_what_the_host_boots_with(tmp_path, before):
    """As grub-mkconfig reads it: a shell sources the site's own file first."""
    boot = kernel_arguments("off", "x86_64")
    assert boot is not None
    assert boot["grub"]["path"] == GRUB
    own = tmp_path / "90-gpucheck.cfg"
    own.write_text(boot["grub"]["content"])
    script = f'GRUB_CMDLINE_LINUX_DEFAULT="{before}"; . {own}; echo "$GRUB_CMDLINE_LINUX_DEFAULT"'

    said = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True).stdout

    assert said == f"{before} intel_iommu=off amd_iommu=off\n".lstrip()


PROFILE = "dgx1-v100"
MACHINE = build(load(PROFILE), DriverState())
SETPCI = """#!/bin/sh
# setpci -s BRIDGE ECAP_ACS+6.w[=VALUE] on files of this name; a bridge without one has no such capability.
[ "$1" = --version ] && exit 0
[ -e "$PCI/$2" ] || exit 1
case $3 in *=*) [ -e "$PCI/$2.stuck" ] || echo "${3#*=}" >"$PCI/$2" ;; *) cat "$PCI/$2" ;; esac
"""


@pytest.fixture
def machine(tmp_path):
    """A simulated machine with network cards below root ports of their own; ACS is set at all of its ports."""
    write(tmp_path / "machine", PROFILE)
    (tmp_path / "pci").mkdir()
    for bridge in MACHINE.ports():
        (tmp_path / "pci" / bridge.bus_id).write_text("001d\n")
    script(tmp_path / "setpci", SETPCI)
    (tmp_path / "acs-off").write_text(text_of("acs-off.sh"))
    return tmp_path


def run(machine: Path) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": f"{machine}:{os.environ['PATH']}", "PCI": str(machine / "pci")}
    words = ["sh", str(machine / "acs-off"), str(machine / "machine/root/sys")]
    return subprocess.run(words, capture_output=True, text=True, env=environment, check=False)


def test_the_program_clears_every_bridge_above_a_gpu_and_no_other(machine):
    done = run(machine)
    above = {bridge.bus_id for gpu in MACHINE.gpus for bridge in MACHINE.chain(gpu.function.bus_id)}
    cleared = {path.name for path in (machine / "pci").iterdir() if path.read_text() == "0000\n"}
    ports = {port.bus_id for port in MACHINE.ports()}

    assert (done.returncode, done.stderr) == (0, "")
    assert cleared == above & ports
    # The upstream port of a switch has no ACS, and bridges above network cards alone keep theirs.
    assert above - ports
    assert ports - above


def test_a_bridge_that_keeps_its_acs_or_a_setpci_that_fails_is_named(machine):
    port = MACHINE.slot(MACHINE.gpus[0].function).bus_id
    (machine / f"pci/{port}.stuck").touch()
    done = run(machine)
    assert (done.returncode, done.stderr) == (1, f"{port} keeps ACS 001d\n")

    (machine / "setpci").write_text("#!/bin/sh\necho 'error while loading shared libraries' >&2\nexit 127\n")
    done = run(machine)
    assert (done.returncode, done.stderr) == (127, "error while loading shared libraries\n")
    assert (machine / "pci" / port).read_text() == "001d\n"


# Further parts of the driver: at its version, held, in its transaction; unconfirmed where no record shows them.
EVERY = tuple(sorted(options().driver_extra))


@pytest.mark.parametrize("system", [name for name in SYSTEMS if name not in ("centos-7", "centos-stream-8")])
def test_no_extra_part_is_named_otherwise_than_a_record_shows_it(system):
    for driver in ("550", "570", "580", "595", "610", "615", "620"):
        cuda = {"cuda": "12.9"} if system == "ubuntu-20.04" else {}
        spec = StackSpec(driver=driver, driver_extra=EVERY, **cuda)
        found = plan(lock(spec, [host(system, "t4-x1")]), host="node01")
        if isinstance(found, Refusal):
            continue
        folder = str(found.repositories[0]["url"]).rstrip("/").split("/")[-2]
        said = {row.spec for row in found.unconfirmed}
        for row in found.components["driver"]["packages"]:
            verdict, why = recordings.judge(folder, found.arch, row["name"], row["version"])
            assert verdict != "wrong", why
            assert (row["spec"] in said) == (verdict != "seen")


def test_lock_carries_the_parts_and_an_edited_one_is_refused():
    text = write_lock(
        lock(parse_spec("driver_extra: [video, mps, video]\n", "stack.yml"), [host("ubuntu-24.04", "t4-x1")])
    )
    assert read_lock(text, "stack.lock.yml").spec.driver_extra == ("mps", "video")

    edited = read_lock(text.replace("- video", "- sound"), "stack.lock.yml")
    found = plan(edited, host="node01")
    assert isinstance(found, Refusal)
    assert "driver_extra sound" in found.conflicts[0].because
