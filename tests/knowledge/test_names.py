"""Finding a GPU by what NVML, lspci or a person calls it."""

import pytest

from gpucheck.knowledge import find_gpu, gpus_of_family, similar_gpus


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("GTX 1080 Ti", "GeForce GTX 1080 Ti"),
        ("3080", "GeForce RTX 3080"),
        ("4090 D", "GeForce RTX 4090 D"),
        ("RTX 8000", "Quadro RTX 6000 or 8000"),
        ("Tesla P100-PCIE-16GB", "Tesla P100-PCIE"),
        ("15f8", "Tesla P100-PCIE"),
        ("0x15F8", "Tesla P100-PCIE"),
        ("10de:15F8", "Tesla P100-PCIE"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
        ("h100 sxm", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
        ("rtx 4090", "GeForce RTX 4090"),
        ("Tesla V100-SXM2-16GB-N", "Tesla V100-SXM2"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
    ],
)
def test_a_gpu_is_found_by_the_names_it_goes_by(text, name):
    found = find_gpu(text)

    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("text", ["RTX 4090 Ti", "P100", "A100", "ffff", "", "GTX 2000"])
def test_what_is_not_exactly_one_product_is_not_guessed(text):
    """A P100 may be PCIe or SXM2, and there is no 4090 Ti."""
    assert find_gpu(text) is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("P100", {"Tesla P100-PCIE", "Tesla P100-SXM2"}),
        ("Tesla V100", {"Tesla V100-PCIE", "Tesla V100-SXM2", "Tesla V100-SXM3"}),
        ("A100 SXM 80GB", {"NVIDIA A100-SXM4-80GB"}),
        ("H100", {"NVIDIA H100 PCIe", "NVIDIA H100 80GB HBM3", "NVIDIA H100 NVL"}),
        ("Tesla P100-PCIE-16GB", set()),
        ("H1000", set()),
        ("", set()),
    ],
)
def test_a_name_without_particulars_means_every_board_it_fits(text, names):
    """Words must match whole: H1000 is no H100, and a full name is no family."""
    assert {gpu.name for gpu in gpus_of_family(text)} == names


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("P100", "Tesla P100-PCIE"),
        ("H1000", "NVIDIA H100 80GB HBM3"),
        ("RTX 4091", "GeForce RTX 4090"),
        ("H10O", "NVIDIA H100 PCIe"),
    ],
)
def test_a_name_that_is_near_is_offered(text, name):
    assert name in similar_gpus(text)
