"""Settings of stack.yml that choose no version: in the plan only if requested. What each adds: golden/specs.yml."""

import os
import subprocess
from pathlib import Path

import pytest

from gpucheck.knowledge.packages import options
from gpucheck.stack import Refusal, StackSpec
from gpucheck.stack.lock import lock, read_lock, write_lock
from gpucheck.stack.plan import plan
from gpucheck.stack.settings import GRUB, RECOMMENDED, SCRIPT, kernel_arguments
from gpucheck.stack.spec import parse_spec
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


SETPCI = """#!/bin/sh
# setpci -s BRIDGE ECAP_ACS+6.w[=VALUE] on files of this name; a bridge without one has no such capability.
[ "$1" = --version ] && exit 0
echo "$*" >>"$PCI/calls"
[ -e "$PCI/$2" ] || exit 1
case $3 in *=*) [ -e "$PCI/$2.stuck" ] || echo "${3#*=}" >"$PCI/$2" ;; *) cat "$PCI/$2" ;; esac
"""


class Machine:
    """Two GPUs below a switch, and a network card below a root port of its own. Its upstream port has no ACS."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.pci = folder, folder / "pci"
        root = "sys/devices/pci0000:40"
        self.device(f"{root}/0000:40:01.0", "0x8086", "0x060400")
        self.device(f"{root}/0000:40:01.0/0000:41:00.0", "0x1000", "0x060400")
        for port, gpu in (("0000:42:00.0", "0000:43:00.0"), ("0000:42:01.0", "0000:44:00.0")):
            above = f"{root}/0000:40:01.0/0000:41:00.0/{port}"
            self.device(above, "0x1000", "0x060400")
            self.device(f"{above}/{gpu}", "0x10de", "0x030200")
        self.device(f"{root}/0000:40:02.0", "0x8086", "0x060400")
        self.device(f"{root}/0000:40:02.0/0000:45:00.0", "0x15b3", "0x020000")
        self.pci.mkdir()
        for bridge in ("0000:40:01.0", "0000:42:00.0", "0000:42:01.0", "0000:40:02.0"):
            (self.pci / bridge).write_text("001d\n")
        tools = folder / "bin"
        tools.mkdir()
        (tools / "setpci").write_text(SETPCI)
        (tools / "setpci").chmod(0o755)
        (folder / "acs-off").write_text(SCRIPT)

    def device(self, path: str, vendor: str, kind: str) -> None:
        folder = self.folder / path
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "class").write_text(f"{kind}\n")
        link = self.folder / "sys/bus/pci/devices" / folder.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder)

    def run(self) -> "subprocess.CompletedProcess[str]":
        environment = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "PCI": str(self.pci)}
        words = ["sh", str(self.folder / "acs-off"), str(self.folder / "sys")]
        return subprocess.run(words, capture_output=True, text=True, env=environment, check=False)

    def control(self, bridge: str) -> str:
        return (self.pci / bridge).read_text().strip()


def test_the_program_clears_every_bridge_above_a_gpu_and_no_other(tmp_path):
    machine = Machine(tmp_path)

    done = machine.run()

    assert (done.returncode, done.stderr) == (0, "")
    assert [machine.control(bridge) for bridge in ("0000:40:01.0", "0000:42:00.0", "0000:42:01.0")] == ["0000"] * 3
    assert machine.control("0000:40:02.0") == "001d"
    assert "ECAP_ACS+6.w=0000" in (machine.pci / "calls").read_text()
    assert "0000:41:00.0 ECAP_ACS+6.w=" not in (machine.pci / "calls").read_text()


def test_a_bridge_that_keeps_its_acs_or_a_setpci_that_fails_is_named(tmp_path):
    machine = Machine(tmp_path)
    (machine.pci / "0000:42:00.0.stuck").touch()
    done = machine.run()
    assert (done.returncode, done.stderr) == (1, "0000:42:00.0 keeps ACS 001d\n")

    (tmp_path / "bin/setpci").write_text("#!/bin/sh\necho 'error while loading shared libraries' >&2\nexit 127\n")
    done = machine.run()
    assert (done.returncode, done.stderr) == (127, "error while loading shared libraries\n")
    assert machine.control("0000:42:00.0") == "001d"


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
