"""What NVIDIA's folder for a system begins with: a plan takes what is there, and refuses with a way out."""

import pytest

from tests.stack.asked import answer, refusal

CASES = [
    ("ubuntu-26.04", "x86_64", "T4", 595, "13.3"),  # id 55259526683, 66715275532
    ("ubuntu-26.04", "sbsa", "H100 PCIe", 595, "13.3"),  # id 55319465634
    ("debian-13", "x86_64", "T4", 590, "13.0"),  # NVIDIA/cuda-repo-management#38
    ("debian-13", "sbsa", "H100 PCIe", 595, "13.0"),  # id 68947563049
    ("debian-12", "sbsa", "H100 PCIe", 590, "13.0"),  # id 68947563049
]


@pytest.mark.parametrize(("system", "arch", "gpu", "branch", "cuda"), CASES)
def test_the_set_is_made_of_what_the_folder_holds(system, arch, gpu, branch, cuda):
    found = answer([gpu], system, arch=arch)

    assert int(found.driver.branch) >= branch
    assert found.cuda
    assert tuple(map(int, found.cuda.split(".")[:2])) >= tuple(map(int, cuda.split(".")))


@pytest.mark.parametrize("gpu", ["P100", "V100"])
@pytest.mark.parametrize(("system", "way"), [("ubuntu-26.04", "Ubuntu 24.04"), ("debian-13", "Debian 12")])
def test_gpus_whose_last_branch_is_not_there_are_refused_with_the_way_out(gpu, system, way):
    first = refusal([gpu], system)

    assert first.rule == "R24"
    assert "no driver 580" in first.because
    assert first.try_.startswith(f"{way}, whose repository has it")
    assert ("nvidia-driver-580-server" in first.try_) == (system == "ubuntu-26.04")


def test_a_stated_driver_that_is_not_there_is_refused_with_one_that_is():
    assert refusal(["T4"], "debian-13", "driver=580").change["driver"].startswith("595.")


def test_without_its_last_toolkit_in_the_folder_a_gpu_still_gets_its_driver():
    """The folder of EL 10 holds CUDA 13 only (id 57935513955), and V100 ends with 12.9: wheels bring their own."""
    found = answer(["V100"], "rocky-10")

    assert (found.driver.branch, found.cuda, found.cudnn, found.nccl) == ("580", None, None, None)
    assert found.torch
    assert any(reason.component == "cuda" and "omitted" in reason.because for reason in found.reasons)
    assert refusal(["V100"], "rocky-10", "cuda=12.9")
