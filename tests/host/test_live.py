"""The host of this process: sysfs, driver, system, simulation, files, and that each is read once."""

import pytest

from gpucheck import simulator
from gpucheck.host import LiveSource, Place, live_source
from gpucheck.model import DriverState, PcieLink, Simulation
from tests.simulator.helpers import write

CLOSED_OLD = DriverState(
    loaded_version="580.95.05", loaded_flavour="proprietary", installed_version="580.178.04", installed_flavour="open"
)


@pytest.fixture
def host(activate):
    """A live host on a simulated machine."""

    def host(name, *faults):
        activate(name, faults)
        return live_source(isolated=False, deadline_s=10)

    return host


def made(directory, name, **options):
    """A host on a machine directory of our own."""
    machine = write(directory, name, **{"driver": None} | options)
    return LiveSource(Place(isolated=False, deadline_s=1, machine=machine))


def gpus(machine):
    return [device for device in machine.read("pci").pci if device.is_nvidia_gpu]


@pytest.mark.parametrize("name", [n for n in simulator.profile_names() if n != "no-gpu"])
def test_sysfs_and_nvml_agree(host, name):
    """Two readers, two ways, one machine: ids, NUMA nodes and links agree for every GPU."""
    machine = host(name)
    by_bus_id = {gpu.pci_bus_id: gpu for gpu in machine.read("nvml").nvml.gpus}
    devices = gpus(machine)
    assert [device.bus_id for device in devices] == list(by_bus_id)
    for device in devices:
        gpu = by_bus_id[device.bus_id]
        assert (device.device_id, device.link) == (gpu.device_id, gpu.pcie)
        assert device.numa_node in (gpu.numa_node, None)
        assert device.driver == "nvidia"


@pytest.mark.parametrize(
    ("speed", "generation"),
    [("2.5 GT/s PCIe", 1), ("8 GT/s", 3), ("16.0 GT/s PCIe", 4), ("64.0 GT/s PCIe", 6), ("Unknown", None), ("", None)],
)
def test_link_speeds_of_old_and_new_kernels(tmp_path, speed, generation):
    machine = made(tmp_path, "p100-pcie-x2")
    (tmp_path / "root/sys/bus/pci/devices/0000:04:00.0/current_link_speed").write_text(f"{speed}\n")

    assert gpus(machine)[0].link.generation == generation


def test_files_that_are_missing_are_none(tmp_path):
    """Older kernels, containers: a GPU without link files is a GPU all the same."""
    machine = made(tmp_path, "h200-x1")
    for name in ("numa_node", "current_link_speed", "max_link_speed", "current_link_width", "max_link_width"):
        (tmp_path / "root/sys/bus/pci/devices/0000:00:05.0" / name).unlink()
    (device,) = gpus(machine)

    assert (device.numa_node, device.link, device.driver) == (None, PcieLink(), None)


@pytest.mark.parametrize(
    "state",
    [
        DriverState(),
        DriverState(nouveau_loaded=True),
        DriverState(installed_version="580.178.04", installed_flavour="proprietary"),
        CLOSED_OLD,
        simulator.load("hgx-h100-x8").driver.state(),
    ],
    ids=["bare", "nouveau", "installed", "upgraded", "healthy"],
)
def test_driver_state_comes_back_as_it_was_written(tmp_path, state):
    assert made(tmp_path, "p100-pcie-x2", driver=state).read("driver").driver == state


def test_module_where_the_centos_family_puts_it(tmp_path):
    """A file with two lines is an installed module; which kernel runs is the machine's to say."""
    machine = made(tmp_path, "p100-pcie-x2")
    module = tmp_path / "root/lib/modules/5.14.0-570.el9.x86_64/extra/nvidia.ko"
    module.parent.mkdir(parents=True)
    module.write_text("version=580.178.04\nlicense=Dual MIT/GPL\n")
    (tmp_path / "root/proc/sys/kernel/osrelease").write_text("5.14.0-570.el9.x86_64\n")
    assert machine.read("system").system.kernel == "5.14.0-570.el9.x86_64"
    assert machine.read("driver").driver == DriverState(installed_version="580.178.04", installed_flavour="open")


def test_module_of_another_kernel_is_not_installed_for_this_one(tmp_path):
    machine = made(
        tmp_path,
        "p100-pcie-x2",
        driver=DriverState(installed_version="580.178.04", installed_flavour="open"),
        kernel="5.15.0-1-generic",
    )
    (tmp_path / "root/proc/sys/kernel/osrelease").write_text("5.15.0-2-generic\n")
    assert machine.read("driver").driver == DriverState()


@pytest.mark.parametrize(
    ("banner", "version", "flavour"),
    [
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)",
            "580.95.05",
            "open",
        ),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024",
            "535.183.01",
            "proprietary",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  570.86.15  Release Build", "570.86.15", "open"),
    ],
)
def test_banner_of_the_real_modules(tmp_path, banner, version, flavour):
    """Where /sys does not say the version, the banner does."""
    machine = made(tmp_path, "p100-pcie-x2")
    (tmp_path / "root/proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "root/proc/driver/nvidia/version").write_text(f"{banner}\nGCC version:  gcc version 11.4.0\n")

    assert machine.read("driver").driver == DriverState(loaded_version=version, loaded_flavour=flavour)


@pytest.mark.parametrize("name", ["nvidia", "nvidia-current"])
def test_real_host_uses_modinfo(tmp_path, monkeypatch, name):
    """Not the stub file: a real module is binary. Debian's own packages call the file nvidia-current.ko."""
    (tmp_path / "modinfo").write_text(
        f'#!/bin/sh\n[ "$1 $3 $5" = "-k -F {name}" ] || exit 1\n'
        '[ "$4" = version ] && echo 580.178.04 || echo "Dual MIT/GPL"\n'
    )
    (tmp_path / "modinfo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    real = LiveSource(Place(isolated=False, deadline_s=1, system_root=tmp_path))

    assert real.read("driver").driver == DriverState(installed_version="580.178.04", installed_flavour="open")


def test_simulation_is_what_the_directory_says(host):
    simulation = host("p100-pcie-x2", "gpu-missing:gpu=1").read("simulation").simulation

    assert (simulation.profile, simulation.faults) == ("p100-pcie-x2", ("gpu-missing:gpu=1",))
    assert simulation.stand_ins


def test_broken_simulation_file_is_simulated_all_the_same(tmp_path):
    """Never real by mistake."""
    machine = made(tmp_path, "p100-pcie-x2")
    (tmp_path / "simulation.json").write_text("{")

    assert isinstance(machine.read("simulation").simulation, Simulation)


def test_without_a_machine_nothing_is_simulated(monkeypatch, tmp_path):
    monkeypatch.delenv("GPUCHECK_SIMULATOR", raising=False)
    monkeypatch.setattr("gpucheck.host.simulated.DEFAULT", tmp_path / "none")

    assert live_source(isolated=False, deadline_s=1).read("simulation").simulation is None


def test_default_place_is_a_machine_when_it_says_so(monkeypatch, tmp_path):
    """The lab's hosts have it there, and no variable in the environment of an SSH command."""
    write(tmp_path, "rtx4090-x2")
    monkeypatch.delenv("GPUCHECK_SIMULATOR", raising=False)
    monkeypatch.setattr("gpucheck.host.simulated.DEFAULT", tmp_path)

    assert live_source(isolated=False, deadline_s=1).read("simulation").simulation == Simulation(profile="rtx4090-x2")


def test_hardware_files_are_the_machines_and_others_the_systems(tmp_path):
    """A simulated machine must not show the /sys of the host it runs on."""
    machine = made(tmp_path / "m", "p100-pcie-x2", driver=CLOSED_OLD)
    real = LiveSource(Place(isolated=False, deadline_s=1, system_root=tmp_path))
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nccl.conf").write_text("NCCL_P2P_DISABLE=1\n")

    paths = ("/sys/module/nvidia/version", "/proc/cmdline", "/sys/kernel/uevent_seqnum", "/etc/os-release")
    version, command_line, number, release = machine.read(*(f"text:{path}" for path in paths)).texts.values()
    assert (version, number) == ("580.95.05\n", None)
    assert command_line.startswith("BOOT_IMAGE=")
    assert release
    found = real.read("text:/etc/nccl.conf", "text:/etc").texts
    assert found == {"/etc/nccl.conf": "NCCL_P2P_DISABLE=1\n", "/etc": None}


def test_a_machine_made_for_this_process_answers_for_its_own_services(monkeypatch, tmp_path):
    """The system underneath has no fabric manager, and its absence would be a finding about nothing."""
    host = LiveSource(Place(isolated=False, deadline_s=5, machine=write(tmp_path, "hgx-h100-x8", software=True)))
    names = ("nvidia-fabricmanager", "ssh")
    facts = host.read(*(f"service:{name}" for name in names), *(f"package:{name}" for name in names))
    assert facts.services == {"nvidia-fabricmanager": "active", "ssh": "not-found"}
    (package,) = facts.installed(names)
    assert (package.version, package.held) == ("580.178.04-1", True)
