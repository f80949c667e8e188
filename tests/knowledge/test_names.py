"""Finding a GPU by what NVML, lspci or a person calls it."""

import pytest

from gpucheck.knowledge import find_gpu, similar_gpus


@pytest.mark.parametrize(
    ("text", "name"),
    [
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
    """NVML names, marketing names and PCI ids all mean the product."""
    found = find_gpu(text)

    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("text", ["RTX 4090 Ti", "4090 D", "P100", "A100", "ffff", "", "GTX 1080"])
def test_what_is_not_exactly_one_product_is_not_guessed(text):
    """A P100 may be PCIe or SXM2, and a 4090 D is another card."""
    assert find_gpu(text) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [("P100", "Tesla P100-PCIE"), ("H1000", "NVIDIA H100 80GB HBM3"), ("RTX 4091", "GeForce RTX 4090")],
)
def test_a_name_that_is_near_is_offered(text, name):
    """Did you mean."""
    assert name in similar_gpus(text)
