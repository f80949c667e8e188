"""The facts module against a hand-made machine: what it reads, and what it says of a host it cannot read."""

import os
from pathlib import Path

import msgspec
import pytest

from tests.playbooks.modules import answer_of, module, shared
from tests.playbooks.stubs import program, put, script

host = shared("host")


def pci(root: Path, bus_id: str, **values: str) -> None:
    folder = root / "sys/bus/pci/devices" / bus_id
    folder.mkdir(parents=True)
    for name, value in values.items():
        (folder / name).write_text(value + "\n")


@pytest.fixture
def machine(tmp_path):
    """A simulated machine: two P100, one NVSwitch, one network card, nvidia 580 proprietary loaded, nouveau too."""
    root = tmp_path / "root"
    gpu = {"vendor": "0x10de", "class": "0x030200", "device": "0x15f8"}
    pci(root, "0000:3b:00.0", **gpu, subsystem_vendor="0x10de", subsystem_device="0x118f")
    pci(root, "0000:af:00.0", **gpu)
    pci(root, "0000:05:00.0", vendor="0x10de", **{"class": "0x068000"}, device="0x22a3")
    pci(root, "0000:06:00.0", vendor="0x15b3", **{"class": "0x020700"}, device="0x1021")
    files = {
        "proc/sys/kernel/osrelease": "5.15.0-179-generic\n",
        "sys/module/nvidia/version": "580.178.04\n",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.178.04  Release\n",
    }
    for name, content in files.items():
        put(root, name, content)
    (root / "sys/module/nouveau").mkdir()
    (tmp_path / "simulation.json").write_text('{"profile": "p100-pcie-x2", "faults": [], "stand_ins": ["kernel"]}')
    return tmp_path


DPKG = (
    "ii \tamd64\tnvidia-dkms-580\t580.178.04-1ubuntu1\\n"
    "hi \tamd64\tlibnccl2\t2.29.3-1+cuda12.9\\n"
    "ii \ti386\tlibnccl2\t2.18.3-1\\n"
    "rc \tamd64\tcuda-toolkit-12-8\t12.8.1-1\\n"
    "iF \tamd64\tnvidia-persistenced\t580.178.04-1ubuntu1\\n"
    "ii \tamd64\tbash\t5.1-6\\n"
)


@pytest.fixture
def facts(machine, tools, monkeypatch):
    program(tools, "dpkg-query", DPKG)
    monkeypatch.setattr(host, "package_family", lambda like: "dpkg")
    return lambda: host.read_facts("lab-apt", str(machine))[0]


def test_devices_are_read_from_sysfs_by_class(facts):
    """GPUs are display and 3D controllers of NVIDIA; switches are its bridges; other vendors do not count."""
    seen = facts()

    assert seen["gpus"] == [
        {"bus_id": "0000:3b:00.0", "device_id": "15f8", "subsystem_id": "10de:118f"},
        {"bus_id": "0000:af:00.0", "device_id": "15f8", "subsystem_id": ""},
    ]
    assert seen["nvswitches"] == 1
    assert seen["nouveau_loaded"] is True
    assert seen["kernel"] == "5.15.0-179-generic"


def test_the_successor_of_nouveau_counts_where_it_has_a_gpu(facts, machine):
    """nova_core is loaded for every GPU, and refuses those that it does not know."""
    (machine / "root/sys/module/nouveau").rmdir()
    (machine / "root/sys/module/nova_core").mkdir()
    place = machine / "root/sys/bus/pci/drivers/NovaCore"
    put(place, "bind")
    assert facts()["nouveau_loaded"] is False

    (place / "0000:3b:00.0").symlink_to("../../../../devices/pci0000:3b/0000:3b:00.0")
    (machine / "root/sys/devices/pci0000:3b/0000:3b:00.0").mkdir(parents=True, exist_ok=True)

    assert facts()["nouveau_loaded"] is True


def test_rdma_cards_are_mellanox_functions_of_a_network_class(facts, machine):
    """InfiniBand and Ethernet; a card's management function and another vendor's card do not count."""
    for index, (vendor, kind) in enumerate((("15b3", "020000"), ("15b3", "080700"), ("8086", "020000"))):
        pci(machine / "root", f"0000:c{index}:00.0", vendor=f"0x{vendor}", device="0xA2DC", **{"class": f"0x{kind}"})

    assert facts()["rdma"] == [
        {"bus_id": "0000:06:00.0", "device_id": "1021", "kind": "infiniband"},
        {"bus_id": "0000:c0:00.0", "device_id": "a2dc", "kind": "ethernet"},
    ]
    assert [row["bus_id"] for row in facts()["gpus"]] == ["0000:3b:00.0", "0000:af:00.0"]


def test_simulated_hardware_says_so(facts, machine):
    assert (facts()["simulated"], facts()["stand_ins"]) == (True, ["kernel"])

    (machine / "simulation.json").unlink()
    assert (facts()["simulated"], facts()["stand_ins"]) == (False, [])


def test_only_installed_packages_of_interest_are_listed(facts):
    """A removed package whose settings stayed (rc) is not installed; i386 does not hide amd64."""
    assert facts()["packages"] == {"nvidia-dkms-580": "580.178.04-1ubuntu1", "libnccl2": "2.29.3-1+cuda12.9"}
    assert facts()["holds"] == ["libnccl2"]


def test_a_package_transaction_that_was_cut_off_is_noticed(facts, machine):
    assert host.read_facts("lab-apt", str(machine))[1]["unfinished"] == ["nvidia-persistenced"]


def test_loaded_and_installed_module_are_told_apart(facts, machine):
    loaded = {"loaded_version": "580.178.04", "loaded_flavour": "proprietary"}
    assert facts()["driver"] == {**loaded, "installed_version": "580.178.04", "installed_flavour": "proprietary"}

    words = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.51.03\n"
    (machine / "root/proc/driver/nvidia/version").write_text(words)
    (machine / "root/sys/module/nvidia/version").write_text("575.51.03\n")
    assert (facts()["driver"]["loaded_version"], facts()["driver"]["loaded_flavour"]) == ("575.51.03", "open")
    assert facts()["driver"]["installed_version"] == "580.178.04"


@pytest.mark.parametrize(("licence", "flavour"), [("Dual MIT/GPL", "open"), ("NVIDIA", "proprietary")])
def test_modinfo_outranks_the_package_name(facts, tools, licence, flavour):
    script(tools / "modinfo", f'#!/bin/sh\ncase "$*" in *license*) echo "{licence}";; *) echo 570.1.2;; esac\n')

    assert facts()["driver"]["installed_version"] == "570.1.2"
    assert facts()["driver"]["installed_flavour"] == flavour


def test_an_installed_dkms_package_without_a_built_module_is_not_an_installed_module(facts, tools):
    """Without headers the package installs with exit status 0 and builds nothing."""
    program(tools, "modinfo", "", status=1)

    assert facts()["driver"]["installed_version"] is None


@pytest.mark.parametrize(("byte", "seen"), [(b"\x01", True), (b"\x00", False)])
def test_secure_boot_is_the_last_byte_of_the_variable(facts, machine, byte, seen):
    assert facts()["secure_boot"] is False  # no EFI at all

    folder = machine / "root/sys/firmware/efi/efivars"
    folder.mkdir(parents=True)
    assert facts()["secure_boot"] is None  # EFI, and the variable is not shown

    (folder / "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c").write_bytes(b"\x06\x00\x00\x00" + byte)
    assert facts()["secure_boot"] is seen


def test_the_facts_are_what_the_resolver_reads(facts):
    """Both sides of the contract, held against each other."""
    from gpucheck.stack.facts import read_facts

    (read,) = read_facts(msgspec.json.encode(facts()), "facts.json")

    assert (read.host, read.nvswitches, len(read.gpus)) == ("lab-apt", 1, 2)
    assert set(facts()) == {field.encode_name for field in msgspec.structs.fields(type(read))}


@pytest.mark.parametrize(
    ("profile", "device", "gpus", "switches"), [("p100-pcie-x2", "15f8", 2, 0), ("hgx-h100-x8", "2330", 8, 4)]
)
def test_simulated_machines_are_read_like_real_ones(tmp_path, tools, monkeypatch, profile, device, gpus, switches):
    """A bare machine as the simulator writes it: GPUs and switches on the bus, no driver, and its mark."""
    from gpucheck import simulator

    program(tools, "dpkg-query", "")
    monkeypatch.setattr(host, "package_family", lambda like: "dpkg")
    simulator.write_machine(simulator.Recipe(profile=simulator.load(profile), driver=None), tmp_path / "machine")

    seen = host.read_facts("lab", str(tmp_path / "machine"))[0]

    assert [gpu["device_id"] for gpu in seen["gpus"]] == [device] * gpus
    assert len({gpu["bus_id"] for gpu in seen["gpus"]}) == gpus
    assert (seen["nvswitches"], seen["simulated"]) == (switches, True)
    assert seen["driver"] == dict.fromkeys(
        ("loaded_version", "loaded_flavour", "installed_version", "installed_flavour")
    )


@pytest.mark.parametrize("damaged", [True, False])
def test_a_simulated_machine_that_cannot_be_read_is_never_taken_for_a_real_one(machine, damaged):
    (machine / "simulation.json").unlink()
    if damaged:
        (machine / "simulation.json").write_text("{")
    else:
        (machine / "simulation.json").mkdir()  # what reading it gives is an error, also for root

    with pytest.raises(host.Unreadable, match=r"simulation\.json"):
        host.simulation(str(machine))


def test_reading_changes_nothing(facts, machine):
    def listing() -> list[tuple[str, float]]:
        return sorted((str(path), os.lstat(path).st_mtime) for path in machine.rglob("*") if path.name != "__pycache__")

    before = listing()
    facts()

    assert listing() == before


def test_the_module_says_which_host_cannot_be_read(monkeypatch):
    """The message of the one task that every host starts with."""
    facts_module = module("gpu_facts")

    def unreadable(_):
        raise facts_module.Unreadable("rpm: exit 1: database is locked")

    monkeypatch.setattr(facts_module, "read_facts", unreadable)
    said = answer_of(facts_module, {"host": "node07", "controller_time": 0.0})

    assert said["msg"].startswith("node07: this host cannot be read: rpm: exit 1")
