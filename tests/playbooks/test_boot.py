"""Kernel arguments: added once, taken away when they were ours, and a reboot only where the running kernel differs."""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpucheck.stack.settings import GRUB, kernel_arguments
from tests.playbooks.modules import ROLES, shared
from tests.playbooks.stubs import put

boot = shared("boot")
words = st.lists(st.sampled_from(["iommu=pt", "intel_iommu=off", "amd_iommu=off", "quiet"]), unique=True)


def test_both_sides_mean_the_same_file():
    role = yaml.safe_load((ROLES / "kernel_arguments/vars/main.yml").read_text())

    assert role["kernel_arguments_file"] == GRUB
    assert role["kernel_arguments_record"] == f"/{boot.NOTE}"


@given(words, words, st.lists(words, min_size=1), words)
def test_after_one_change_nothing_is_left_but_the_boot_and_after_that_nothing(wanted, ours, lines, running):
    """Whatever stood there: and what was not ours is still there."""
    lines = [" ".join(line) for line in lines]
    first = boot.decide(wanted, (ours, []), lines, " ".join(running))
    note = boot.after((ours, []), first["add"], first["drop"])

    changed = []
    for line in lines:
        kept = [word for word in line.split() if word not in first["drop"]]
        changed.append(" ".join(kept + [word for word in first["add"] if word not in kept]))
    noted = (note["added"], note["removed"])
    second = boot.decide(wanted, noted, changed, " ".join(running))
    booted = boot.decide(wanted, noted, changed, changed[0])

    assert (second["add"], second["drop"]) == ([], [])
    assert booted == {"add": [], "drop": [], "lacking": [], "lingering": []}
    foreign = {word for line in lines for word in line.split()} - set(ours)
    assert foreign <= {word for line in changed for word in line.split()}


def test_an_argument_that_the_site_set_itself_never_becomes_ours():
    seen = boot.decide(["iommu=pt"], ([], []), ["quiet iommu=pt"], "quiet iommu=pt")

    assert boot.after(([], []), seen["add"], seen["drop"]) == {"added": [], "removed": []}
    assert boot.differences({**seen, "file_wrong": False}) == []


def test_an_argument_that_the_site_sets_after_ours_was_taken_away_asks_for_no_boot():
    note = ([], ["iommu=pt"])

    assert boot.reboot_reasons(boot.decide([], note, ["quiet iommu=pt"], "quiet iommu=pt")) == []
    # Without a boot entry that can be read, only the running kernel speaks.
    assert boot.reboot_reasons(boot.decide([], note, [], "quiet iommu=pt")) == ["the kernel still runs with iommu=pt"]


DEBIAN = """menuentry 'Debian GNU/Linux' {
\tlinux\t/boot/vmlinuz-6.1.0-38-amd64 root=/dev/sda1 ro quiet %s
}
menuentry 'Debian GNU/Linux, with Linux 6.1.0-38-amd64 (recovery mode)' {
\tlinux\t/boot/vmlinuz-6.1.0-38-amd64 root=/dev/sda1 ro single
}
"""


class Host:
    """An apt host; apply does what role kernel_arguments does, and the menu is written from our file alone."""

    def __init__(self, root, monkeypatch):
        self.root = root
        self.write("boot/grub/grub.cfg", DEBIAN % "")
        self.write("proc/cmdline", "root=/dev/sda1 ro quiet")
        state = boot.state
        monkeypatch.setattr(boot, "state", lambda plan, _root="/": state(plan, str(root)))

    def write(self, path, content):
        put(self.root, path, content)

    def apply(self, plan, cut_off=False):
        seen, own = boot.state(plan), self.root / GRUB.lstrip("/")
        self.write(boot.NOTE, json.dumps(seen["during"]))
        if cut_off:
            return
        own.unlink(missing_ok=True)
        if seen["write"]:
            self.write(GRUB.lstrip("/"), plan["tuning"]["boot"]["grub"]["content"])
            own.chmod(0o644)
        added = own.read_text().partition(":+$GRUB_CMDLINE_LINUX_DEFAULT }")[2] if own.exists() else ""
        self.write("boot/grub/grub.cfg", DEBIAN % added.strip().strip('"'))
        self.write(boot.NOTE, json.dumps(seen["after"]))

    def reboot(self):
        (line, *_) = boot.entries("apt", str(self.root))
        self.write("proc/cmdline", line)


def plan(iommu):
    tuning = {"boot": kernel_arguments(iommu, "x86_64")} if iommu else {}
    return {"package_manager": "apt", "tuning": tuning, "components": {}}


@pytest.fixture
def host(tmp_path, monkeypatch):
    return Host(tmp_path, monkeypatch)


def test_an_apt_host_gets_a_file_and_a_menu_and_is_content_after_a_boot(host):
    wanted = plan("passthrough")
    assert boot.differences(boot.state(wanted))[0] == "kernel arguments iommu=pt are missing in a boot entry"

    host.apply(wanted)

    assert boot.differences(boot.state(wanted)) == ["reboot needed: the kernel runs without iommu=pt"]
    host.reboot()
    assert boot.differences(boot.state(wanted)) == []
    assert "single iommu" not in (host.root / boot.GRUB_CONFIG).read_text()


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("20_memtest86+", "linux16\t/boot/memtest86+.bin"),
        ("20_memtest86+", "linux /memtest86+x64.efi console=ttyS0,115200"),
        ("20_ipxe", "linux16 /boot/ipxe.lkrn"),
        ("30_os-prober", "linux /boot/vmlinuz-6.12.0 root=/dev/sdb1"),
        ("40_custom", "linux /boot/vmlinuz-6.1.0-38-amd64 root=/dev/sda1 init=/bin/sh"),
    ],
)
def test_an_entry_that_is_not_one_of_this_systems_kernels_lacks_no_argument(host, source, line):
    """update-grub writes it without those of GRUB_CMDLINE_LINUX_DEFAULT, so that it would lack them for ever."""
    host.apply(plan("passthrough"))
    parts = {"10_linux": (host.root / boot.GRUB_CONFIG).read_text(), source: f"menuentry 'x' {{\n\t{line}\n}}\n"}
    marked = (
        f"### BEGIN /etc/grub.d/{name} ###\n{part}### END /etc/grub.d/{name} ###\n" for name, part in parts.items()
    )
    host.write(boot.GRUB_CONFIG, "\n".join(marked))
    host.reboot()

    assert boot.differences(boot.state(plan("passthrough"))) == []


def test_another_spec_replaces_what_was_ours(host):
    host.apply(plan("passthrough"))
    host.reboot()

    host.apply(plan("off"))

    assert boot.reboot_reasons(boot.state(plan("off"))) == [
        "the kernel runs without intel_iommu=off amd_iommu=off",
        "the kernel still runs with iommu=pt",
    ]
    host.reboot()
    assert boot.differences(boot.state(plan("off"))) == []


def test_without_the_spec_file_and_arguments_go_and_the_boot_that_ends_them_is_asked_for(host):
    host.apply(plan("passthrough"))
    host.reboot()
    assert boot.differences(boot.state(plan(None)))[0] == "kernel arguments iommu=pt are no longer planned"

    host.apply(plan(None))

    assert not (host.root / GRUB.lstrip("/")).exists()
    assert boot.differences(boot.state(plan(None))) == ["reboot needed: the kernel still runs with iommu=pt"]
    host.reboot()
    assert boot.differences(boot.state(plan(None))) == []


def test_a_run_that_was_cut_off_before_the_menu_was_written_is_taken_back(host):
    host.apply(plan("passthrough"), cut_off=True)

    assert boot.state(plan("passthrough"))["add"] == ["iommu=pt"]
    assert boot.state(plan(None))["drop"] == ["iommu=pt"]


def test_our_file_that_somebody_changed_is_a_difference(host):
    host.apply(plan("passthrough"))
    host.reboot()
    host.write(GRUB.lstrip("/"), "")

    assert boot.differences(boot.state(plan("passthrough"))) == [
        "the file with the kernel arguments for boot entries is missing or different"
    ]


def test_grubbys_answer_is_read_entry_by_entry(monkeypatch):
    said = 'index=0\nkernel="/boot/vmlinuz-5.14"\nargs="ro quiet iommu=pt"\nindex=1\nargs="ro quiet"\n'
    monkeypatch.setattr(boot, "command", lambda argv: said)

    assert boot.entries("dnf") == ["ro quiet iommu=pt", "ro quiet"]
    assert boot.decide(["iommu=pt"], ([], []), boot.entries("dnf"), "ro")["add"] == ["iommu=pt"]


def test_a_host_without_a_boot_loader_that_can_be_told_is_refused(monkeypatch):
    monkeypatch.setattr(boot.isolation, "guest", lambda root="/": None)
    monkeypatch.setattr(boot.shutil, "which", lambda tool: None)

    (said,) = boot.refusals(plan("passthrough"))

    assert "this host has no update-grub" in said
    assert boot.refusals(plan(None)) == []


def test_the_comparison_says_it_under_a_name_of_its_own_with_the_reboot_that_it_takes(machine, monkeypatch):
    """So that drain and the question whether programs use the GPUs come before it, as before a driver."""
    machine.plan["tuning"] = {"files": [], "live": [], "boot": kernel_arguments("passthrough", "x86_64")}
    seen = {"add": ["iommu=pt"], "drop": [], "lacking": ["iommu=pt"], "lingering": [], "file_wrong": False}
    monkeypatch.setattr(boot, "state", lambda plan: seen)
    monkeypatch.setattr(boot.isolation, "guest", lambda root="/": "a virtual machine (kvm)")

    answer = machine.compare()

    assert set(answer["differences"]) == {"kernel_arguments", "gpucheck"}
    assert answer["reboot"] == ["the kernel runs without iommu=pt"]
    assert "this host is a virtual machine (kvm)" in answer["host"]["refusals"][0]
