"""Sets worked out by hand from the sources: the resolver returns the same."""

from operator import attrgetter

import pytest

from tests.stack.asked import answer

# (GPUs, system, specification, values of the set)
SETS = [
    # Held cuDNN, and the last torch on PyPI with sm_60 code.
    (
        ["P100 PCIe"] * 2,
        "ubuntu-22.04",
        (),
        {
            "driver.version": "580.178.04",
            "driver.kernel_module": "proprietary",
            "cuda": "12.9.1",
            "cudnn": "9.10.2.21",
            "nccl": "2.29.3+cuda12.9",
            "fabric_manager": None,
            "torch.version": "2.7.1",
            "torch.build": "cu126",
            "torch.python": "3.10",
            "tensorflow.constraints": ("nvidia-cudnn-cu12==9.10.2.21",),
        },
    ),
    (
        ["V100 PCIe", "A100 PCIe 80GB"],
        "ubuntu-24.04",
        (),
        {"driver.branch": "580", "driver.kernel_module": "proprietary"},
    ),
    (["V100", "A100"], "ubuntu-22.04", (), {"driver.branch": "580", "driver.kernel_module": "proprietary"}),
    (["RTX 4090"] * 2, "ubuntu-24.04", (), {"fabric_manager": None, "subnet_manager": False, "imex": None}),
    # Fabric manager runs on the rack's switch trays; the host is aarch64.
    (
        ["GB200"] * 4,
        "ubuntu-24.04",
        (),
        {"imex": "580.178.04", "fabric_manager": None, "arch": "sbsa", "tensorflow": None},
    ),
    (
        ["B200"] * 8,
        "ubuntu-24.04",
        (),
        {"fabric_manager": "580.178.04", "subnet_manager": True, "driver.kernel_module": "open"},
    ),
    # CUDA 13.2 in full needs branch 595; 13.2.1 has known wrong results and is not chosen.
    (["H100 SXM"], "ubuntu-22.04", ("cuda=13.2",), {"cuda": "13.2.2", "driver.branch": "595"}),
    (["H100 SXM"], "ubuntu-24.04", ("cuda>=13.2,<13.2.2",), {"cuda": "13.2.0"}),
    # os-release, users and the tables spell systems differently.
    (["T4"], "almalinux-9.4", (), {"os": "alma-9"}),
    (["T4"], "centos-9", (), {"os": "centos-stream-9"}),
    (["T4"], "el-9", (), {"os": "rhel-9"}),
]


@pytest.mark.parametrize(("gpus", "os", "want", "values"), SETS)
def test_set_has_the_values_worked_out_by_hand(gpus, os, want, values):
    found = answer(gpus, os, *want)

    assert {name: attrgetter(name)(found) for name in values} == values


def test_eight_h100_sxm_on_rocky_9():
    found = answer(["2330"] * 8, "rocky-9", nvswitches=4)

    assert (found.driver.version, found.driver.kernel_module) == ("580.178.04", "open")
    assert found.fabric_manager == found.driver.version
    assert (found.cuda, found.cudnn, found.nccl) == ("13.0.2", "9.26.0.51", "2.30.7+cuda13.3")


# (GPUs, system, specification, values of the set, the reason: its text or rule, whether it is confirmed)
REASONS = [
    (["P100 PCIe"] * 2, "ubuntu-22.04", (), {}, "torch.compile", True),
    (["H100 SXM"], "ubuntu-24.04", ("cuda=13.2.1",), {"cuda": "13.2.1"}, "wrong-result", True),
    # Older guides installed driver and toolkit at once.
    (["H100 SXM"], "ubuntu-24.04", ("cuda=13.4",), {}, "R21", True),
    # The NVSwitch board is assumed from eight SXM GPUs.
    (["H200"] * 8, "ubuntu-24.04", (), {"driver.kernel_module": "open"}, "assumed to be an NVSwitch board", False),
    # Minor version compatibility, and no PTX JIT.
    (["H100 SXM"], "ubuntu-22.04", ("cuda=13.2", "driver=580"), {"driver.branch": "580"}, "R3", False),
    # Open modules list it only from 575; an ended branch is chosen only by name.
    (["T4"], "ubuntu-22.04", ("driver=570",), {"driver.kernel_module": "proprietary"}, "has ended", False),
    (["P100 PCIe"], "ubuntu-24.04", ("nccl=2.31",), {}, "carried over from 2.30.7", False),
    (
        ["T4"],
        "rocky-10",
        (),
        {},
        "Rocky Linux 10: that its default Python is 3.12 and that its glibc is 2.39 was not confirmed",
        False,
    ),
]


@pytest.mark.parametrize(("gpus", "os", "want", "values", "reason", "confirmed"), REASONS)
def test_set_states_the_reason_and_whether_it_is_confirmed(gpus, os, want, values, reason, confirmed):
    found = answer(gpus, os, *want)

    assert {name: attrgetter(name)(found) for name in values} == values
    assert any((reason == row.rule or reason in row.because) and row.confirmed is confirmed for row in found.reasons)


def test_confirmed_system_has_no_reason():
    assert not any(row.component == "os" for row in answer(["T4"], "ubuntu-24.04").reasons)


def test_pci_bus_without_nvswitch_means_no_fabric_manager():
    assert answer(["H200"] * 8, "ubuntu-24.04", nvswitches=0).fabric_manager is None


def test_cpu_torch_does_not_change_the_libraries_of_the_host():
    """They follow the newest official build for the GPUs, whatever torch the site installs."""
    plain, cpu = answer(["P100 PCIe"], "ubuntu-22.04"), answer(["P100 PCIe"], "ubuntu-22.04", "torch=2.13.0+cpu")

    assert cpu.torch
    assert (cpu.cudnn, cpu.nccl, cpu.torch.build) == (plain.cudnn, plain.nccl, "cpu")


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
def test_name_of_several_boards_selects_one_and_states_it(gpus, nvswitches, board, fabric_manager):
    """They share everything but the switch fabric, which the number of GPUs or of switches decides."""
    found = answer(gpus, "ubuntu-22.04", nvswitches=nvswitches)

    assert set(found.gpus) == {board}
    assert (found.fabric_manager is not None) is fabric_manager
    assert any(gpus[0] in r.because and board in r.because and not r.confirmed for r in found.reasons)
