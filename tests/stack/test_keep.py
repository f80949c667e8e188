"""driver: keep: the set is chosen for the driver that the hosts have, and no plan touches that driver."""

import msgspec
import pytest

from gpucheck.stack import SpecError, StackSpec, parse_spec, resolve
from gpucheck.stack.facts import DriverFacts
from gpucheck.stack.lock import lock, read_lock, still_valid, target_of_group, write_lock
from gpucheck.stack.plan import plan
from gpucheck.stack.types import Refusal
from tests.stack.hosts import host

SPEC = StackSpec(driver="keep")


def with_driver(system, gpus, version, flavour="proprietary", name="a", **changes):
    driver = {"loaded_version": version, "loaded_flavour": flavour} | {
        "installed_version": version,
        "installed_flavour": flavour,
    }
    return msgspec.structs.replace(host(system, gpus, name), driver=DriverFacts(**{**driver, **changes}))


@pytest.mark.parametrize(
    ("system", "gpus", "version", "flavour", "cuda"),
    [
        ("ubuntu-22.04", "h100-sxm5-x8", "550.54.15", "open", "12.4"),
        ("debian-12", "rtx3090-x2", "535.309.01", "proprietary", "12.2"),
        ("rocky-9", "a100-sxm4-x8", "570.133.20", "open", "12.8"),
        ("ubuntu-24.04", "b200-x8", "580.95.05", "open", "13.0"),
    ],
)
def test_what_fits_the_present_driver_is_planned_and_the_driver_is_not(system, gpus, version, flavour, cuda):
    made = lock(SPEC, [with_driver(system, gpus, version, flavour)])
    ((name, group),) = made.groups.items()
    found = plan(made, group=name)

    assert name.endswith(f"-driver{version}-{flavour}")
    assert (group.stack.driver.version, group.stack.driver.kernel_module) == (version, flavour)
    assert group.stack.cuda.startswith(f"{cuda}.")
    assert (found.components["driver"], found.components["fabric_manager"]) == ({"packages": [], "holds": []},) * 2
    assert found.components["cuda"]["packages"]
    assert (found.headers, found.compilers, found.services, found.module_stream) == ((), (), (), None)
    assert (found.reboot, found.header_metapackage) == ({"when": ()}, msgspec.UNSET)
    paths = {row["path"] for row in found.files}
    assert not [path for path in paths if path.startswith(("/etc/modprobe.d", "/etc/modules-load.d", "/etc/systemd"))]
    assert found.expected["driver_version"] == version


def test_the_repository_of_cuda_brings_no_driver_to_these_hosts():
    """By the system's own upgrades: it has a newer driver of the same name."""
    made = lock(
        SPEC,
        [with_driver("debian-12", "rtx3090-x2", "535.309.01"), with_driver("rocky-9", "t4-x1", "550.54.15", name="b")],
    )
    apt, dnf = plan(made, host="a"), plan(made, host="b")

    (pin,) = [row["content"] for row in apt.files if row["path"] == "/etc/apt/preferences.d/gpucheck-nvidia"]
    assert "Pin: release o=NVIDIA\nPin-Priority: -1" in pin
    excluded = {row["name"]: row.get("exclude", "") for row in dnf.repositories}
    assert "kmod-nvidia*" in excluded["cuda-rhel9-x86_64"]
    assert not any(
        "exclude" in row for row in plan(lock(StackSpec(), [host("rocky-9", "t4-x1", "b")]), host="b").repositories
    )


def test_cuda_that_the_present_driver_cannot_carry_is_refused_with_what_it_can():
    spec = StackSpec(driver="keep", cuda="13.0")
    (conflict,) = lock(spec, [with_driver("ubuntu-22.04", "t4-x1", "550.54.15")]).refused["a"].conflicts

    assert conflict.because == "driver 550.54.15 is older than 580.65.06, the minimum of every CUDA 13 program"
    assert conflict.try_.startswith("cuda 12.4.1 instead of cuda 13.0")


def test_a_package_of_the_drivers_version_is_refused():
    spec = parse_spec("driver: keep\nnvidia_modprobe: auto\n", "stack.yml")
    (conflict,) = lock(spec, [with_driver("ubuntu-22.04", "t4-x1", "550.54.15")]).refused["a"].conflicts

    assert conflict.because == "nvidia-modprobe comes with the driver, which is kept as it is"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict.fromkeys(("loaded_version", "installed_version")), "no NVIDIA driver that could be kept"),
        ({"installed_version": "580.95.05"}, "550.54.15 is loaded on a and 580.95.05 is installed"),
        ({"loaded_version": "x" * 99}, "the version of the driver of a is 'xxx"),
        ({"loaded_flavour": None, "installed_flavour": "odd"}, "no NVIDIA driver that could be kept"),
    ],
)
def test_a_host_without_a_settled_driver_is_refused_alone(changes, words):
    hosts = [with_driver("ubuntu-22.04", "t4-x1", "550.54.15", **changes)]
    made = lock(SPEC, [*hosts, with_driver("ubuntu-22.04", "t4-x1", "550.54.15", name="b")])

    assert words in made.refused["a"].conflicts[0].because
    assert [list(group.hosts) for group in made.groups.values()] == [["b"]]


def test_hosts_with_other_drivers_have_sets_of_their_own_and_their_lock_survives_its_file():
    hosts = [with_driver("ubuntu-22.04", "t4-x1", version, name=version) for version in ("535.1.1", "550.54.15")]
    made = lock(SPEC, hosts)

    assert len(made.groups) == 2
    assert read_lock(write_lock(made), "stack.lock.yml") == made
    for group in made.groups.values():
        assert still_valid(target_of_group(group), group.stack, SPEC) == ()
    assert "kept" not in write_lock(lock(StackSpec(), hosts))


def test_without_the_facts_of_a_host_there_is_nothing_to_keep():
    found = resolve(["T4"], "ubuntu-22.04", spec=SPEC)

    assert isinstance(found, Refusal)
    assert "no host was read" in found.conflicts[0].because
    assert "gpucheck stack lock --facts" in found.conflicts[0].try_


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gdrcopy: auto", "gdrcopy: contradicts line 1: it belongs to the driver"),
        ("kernel_module: open", "it belongs to the driver"),
        ("driver_extra: [mps]", "it belongs to the driver"),
        ("module_options: {NVreg_EnableGpuFirmware: 0}", "it belongs to the driver"),
        ("kernel: upgrade", "it belongs to the driver"),
        ("mok: {key: /a, certificate: /b}", "it belongs to the driver"),
        ("imex: slurm", "it belongs to the driver"),
        ("tuning: {iommu: off}", "iommu changes the kernel's arguments"),
        ("source: debian", "debian is where the driver comes from"),
        ("cuda: keep", "only a driver can be kept"),
    ],
)
def test_what_would_change_the_driver_is_refused_in_the_specification(line, words):
    with pytest.raises(SpecError, match=words):
        parse_spec(f"driver: keep\n{line}\n", "stack.yml")
