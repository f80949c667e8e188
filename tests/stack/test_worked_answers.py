"""Answers worked out by hand from the sources: the resolver must come to the same."""

import pytest

from gpucheck.stack import StackSet, resolve
from tests.stack.asked import answer


def test_two_p100_on_ubuntu_22_04():
    """580 proprietary, CUDA 12.9, held cuDNN, the last torch on PyPI with sm_60 code."""
    found = answer(["P100 PCIe"] * 2, "ubuntu-22.04")

    assert (found.driver.branch, found.driver.version, found.driver.kernel_module) == (
        "580",
        "580.178.04",
        "proprietary",
    )
    assert (found.cuda, found.cudnn, found.nccl) == ("12.9.1", "9.10.2.21", "2.29.3+cuda12.9")
    assert found.torch
    assert found.tensorflow
    assert (found.torch.version, found.torch.build, found.torch.python) == ("2.7.1", "cu126", "3.10")
    assert found.tensorflow.constraints == ("nvidia-cudnn-cu12==9.10.2.21",)
    assert found.fabric_manager is None
    assert any("torch.compile" in reason.because for reason in found.reasons)


def test_eight_h100_sxm_on_rocky_9():
    """Open modules, fabric manager at the driver's own version, CUDA 13.0."""
    found = answer(["2330"] * 8, "rocky-9", nvswitches=4)

    assert (found.driver.version, found.driver.kernel_module) == ("580.178.04", "open")
    assert found.fabric_manager == found.driver.version
    assert (found.cuda, found.cudnn, found.nccl) == ("13.0.2", "9.26.0.51", "2.30.7+cuda13.3")


def test_v100_and_a100_in_one_host():
    """Proprietary, and not beyond 580."""
    found = answer(["V100 PCIe", "A100 PCIe 80GB"], "ubuntu-24.04")

    assert (found.driver.branch, found.driver.kernel_module) == ("580", "proprietary")


def test_a_toolkit_with_wrong_results_is_passed_over_unless_it_is_named():
    """13.2.1; by its exact version it is given, with the warning."""
    passed_over = answer(["H100 SXM"], "ubuntu-24.04", "cuda>=13.2,<13.2.2")
    named = answer(["H100 SXM"], "ubuntu-24.04", "cuda=13.2.1")

    assert (passed_over.cuda, named.cuda) == ("13.2.0", "13.2.1")
    assert any("wrong-result" in reason.because for reason in named.reasons)


def test_from_cuda_13_4_the_driver_is_a_package_of_its_own():
    """Said, because older guides installed both at once."""
    found = answer(["H100 SXM"], "ubuntu-24.04", "cuda=13.4")

    assert any(reason.rule == "R21" for reason in found.reasons)


def test_rtx_4090_has_no_fabric_parts():
    """No NVLink, so no fabric manager, subnet manager or IMEX."""
    found = answer(["RTX 4090"] * 2, "ubuntu-24.04")

    assert (found.fabric_manager, found.subnet_manager, found.imex) == (None, False, None)


def test_gb200_needs_imex_and_no_fabric_manager():
    """Fabric manager runs on the rack's switch trays; the host is aarch64."""
    found = answer(["GB200"] * 4, "ubuntu-24.04")

    assert (found.imex, found.fabric_manager, found.arch) == (found.driver.version, None, "sbsa")
    assert found.tensorflow is None


def test_b200_needs_fabric_manager_and_the_subnet_manager():
    """NVLink 5 boards."""
    found = answer(["B200"] * 8, "ubuntu-24.04")

    assert (found.fabric_manager, found.subnet_manager) == (found.driver.version, True)
    assert found.driver.kernel_module == "open"


def test_h200_eight_on_ubuntu_24_04():
    """Open modules; the NVSwitch board is assumed from eight SXM GPUs, and said to be."""
    found = answer(["H200"] * 8, "ubuntu-24.04")

    assert (found.driver.kernel_module, found.fabric_manager) == ("open", found.driver.version)
    assert any(r.component == "fabric_manager" and not r.confirmed for r in found.reasons)


def test_no_nvswitch_on_the_bus_means_no_fabric_manager():
    """What was read outranks what the GPUs suggest."""
    assert answer(["H200"] * 8, "ubuntu-24.04", nvswitches=0).fabric_manager is None


def test_a_newer_toolkit_moves_the_driver():
    """CUDA 13.2 in full needs branch 595; 13.2.1 has known wrong results and is passed over."""
    found = answer(["H100 SXM"], "ubuntu-22.04", "cuda=13.2")

    assert (found.cuda, found.driver.branch) == ("13.2.2", "595")


def test_a_toolkit_newer_than_its_driver_is_marked():
    """Driver 580 with CUDA 13.2: minor version compatibility, and no PTX JIT."""
    found = answer(["H100 SXM"], "ubuntu-22.04", "cuda=13.2", "driver=580")

    assert found.driver.branch == "580"
    assert any(r.rule == "R3" and not r.confirmed for r in found.reasons)


def test_a_cpu_torch_does_not_change_the_hosts_own_libraries():
    """They follow the newest official build for the GPUs, whatever torch the site installs."""
    plain, cpu = answer(["P100 PCIe"], "ubuntu-22.04"), answer(["P100 PCIe"], "ubuntu-22.04", "torch=2.13.0+cpu")

    assert cpu.torch
    assert (cpu.cudnn, cpu.nccl, cpu.torch.build) == (plain.cudnn, plain.nccl, "cpu")


def test_the_t4_uses_proprietary_modules_on_an_old_branch():
    """Open modules list it only from 575; an ended branch is taken only by name, and marked."""
    found = answer(["T4"], "ubuntu-22.04", "driver=570")

    assert found.driver.kernel_module == "proprietary"
    assert any("has ended" in r.because and not r.confirmed for r in found.reasons)


@pytest.mark.parametrize(
    ("gpus", "nvswitches", "board", "fabric_manager"),
    [
        (["P100"] * 2, None, "Tesla P100-PCIE", False),
        (["A100"] * 2, None, "NVIDIA A100-PCIE-40GB", False),
        (["A100"] * 8, None, "NVIDIA A100-SXM4-40GB", True),
        (["H100"] * 8, None, "NVIDIA H100 80GB HBM3", True),
        (["H100"] * 8, 0, "NVIDIA H100 PCIe", False),
        (["A100 SXM"] * 4, None, "NVIDIA A100-SXM4-40GB", False),
    ],
)
def test_a_name_of_several_boards_is_taken_for_one_and_that_is_said(gpus, nvswitches, board, fabric_manager):
    """They share everything but the switch fabric, which the number of GPUs or of switches decides."""
    found = resolve(gpus, "ubuntu-22.04", nvswitches=nvswitches)

    assert isinstance(found, StackSet)
    assert set(found.gpus) == {board}
    assert (found.fabric_manager is not None) is fabric_manager
    assert any(gpus[0] in r.because and board in r.because and not r.confirmed for r in found.reasons)


def test_a_volta_and_an_ampere_by_their_short_names_get_the_proprietary_modules():
    """V100 and A100 in one host."""
    found = resolve(["V100", "A100"], "ubuntu-22.04")

    assert isinstance(found, StackSet)
    assert (found.driver.kernel_module, found.driver.branch) == ("proprietary", "580")


@pytest.mark.parametrize(
    ("text", "found"), [("almalinux-9.4", "alma-9"), ("centos-9", "centos-stream-9"), ("el-9", "rhel-9")]
)
def test_systems_are_found_by_what_they_are_called(text, found):
    """os-release, people and the tables spell them differently."""
    assert answer(["T4"], text).os == found


def test_what_a_decision_rests_on_and_was_not_confirmed_is_said():
    """A system's Python, a code list that was carried over; nothing where everything was read."""
    rocky, ubuntu = answer(["T4"], "rocky-10"), answer(["T4"], "ubuntu-24.04")
    carried = answer(["P100 PCIe"], "ubuntu-24.04", "nccl=2.31")

    assert [r.because for r in rocky.reasons if r.component == "os"] == [
        "Rocky Linux 10: that its default Python is 3.12 and that its glibc is 2.39 was not confirmed"
    ]
    assert not any(r.component == "os" for r in ubuntu.reasons)
    assert any("carried over from 2.30.7" in r.because and not r.confirmed for r in carried.reasons)
