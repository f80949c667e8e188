"""Plans of aarch64 hosts, which NVIDIA's repositories call sbsa: Grace boards, and ARM servers with PCIe GPUs."""

import pytest

from tests.stack.asked import refusal
from tests.stack.hosts import SYSTEMS
from tests.stack.plan.test_plan import planned

ARM = ("gh200-x1", "gb200-x4", "h100-pcie-x2-arm64")
# Ubuntu 20.04 needs a stated driver; nothing supported runs on the two others.
HOSTS = [name for name in SYSTEMS if name not in ("ubuntu-20.04", "centos-7", "centos-stream-8")]


@pytest.mark.parametrize("gpus", ARM)
@pytest.mark.parametrize("system", HOSTS)
def test_plan_takes_everything_from_folders_of_its_architecture(system, gpus):
    found = planned(system, gpus)

    nvidia, toolkit = (str(row["url"]) for row in found.repositories)
    assert found.arch == "sbsa"
    assert nvidia.endswith("/sbsa/")
    assert toolkit.endswith(("/deb/arm64/", "/rpm/aarch64/"))
    assert not any("x86_64" in name or "amd64" in name for name in found.headers)
    assert found.stack.driver.kernel_module == "open"
    if found.dkms_source:
        words = f"{found.dkms_source['repository']['url']} {found.dkms_source['enable']}"
        assert "aarch64" in words
        assert "x86_64" not in words


@pytest.mark.parametrize("system", HOSTS)
def test_imex_belongs_to_a_rack_and_nvswitches_to_none(system):
    rack, single = planned(system, "gb200-x4"), planned(system, "gh200-x1")

    assert rack.stack.imex == rack.stack.driver.version
    assert any(row["name"].startswith("nvidia-imex") for row in rack.components["fabric_manager"]["packages"])
    assert (single.stack.imex, single.stack.fabric_manager, rack.stack.fabric_manager) == (None, None, None)


def test_records_of_the_other_architecture_confirm_nothing():
    """nvidia-utils and cuDNN are recorded for x86_64 alone, NCCL for both (ubuntu2404)."""
    said = {row.spec for row in planned("ubuntu-24.04", "gh200-x1").unconfirmed}

    assert "libnccl2=2.30.7-1+cuda13.3" not in said
    assert "libnvidia-compute-580=580.178.04-1ubuntu1" in said
    assert "libnvidia-compute-580=580.178.04-1ubuntu1" not in {
        row.spec for row in planned("ubuntu-24.04", "h100-pcie-x2").unconfirmed
    }


@pytest.mark.parametrize("gpus", ["gh200-x1", "gb200-x4"])
def test_torch_is_an_aarch64_build_for_the_gpu(gpus):
    torch = planned("ubuntu-24.04", gpus).stack.torch

    assert torch is not None
    assert (torch.version, torch.build, torch.origin) == ("2.15.0", "cu132", "pypi")
    assert "sbsa" in refusal(["GB200"], "ubuntu-24.04", arch="x86_64").try_
