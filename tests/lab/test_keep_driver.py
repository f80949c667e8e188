"""driver: keep on a light host: CUDA comes and goes, and nothing of the driver that is there changes."""

import os

import pytest

from tests.lab.own_lab import OwnLab, outcomes

pytestmark = pytest.mark.more_labs

LAB = OwnLab("gpucheck-keep", os.environ.get("GPUCHECK_TEST_KEEP_SUBNET", "10.213.55.0/24"))
BESIDE = ("cuda", "cudnn", "nccl", "container_toolkit")
SKIP = ("--skip-tags", "gpucheck,verify")
# The driver as a person installed it: with packages, and without a record of gpucheck.
FORGET = """
apt-mark showhold | xargs -r apt-mark unhold >/dev/null
rm -rf /etc/gpucheck /var/lib/gpucheck /etc/apt/preferences.d/gpucheck* /etc/apt/apt.conf.d/51gpucheck*
"""
DRIVER = """
dpkg-query -W '*nvidia*' | awk 'NF > 1' | grep -v container
find /etc/modprobe.d /etc/modules-load.d /etc/systemd/system -type f -exec sha256sum {} +
cat /var/lib/gpucheck-lab/boots
"""
CUDA = "dpkg-query -W 'cuda-toolkit*' 2>/dev/null | awk 'NF > 1' || :"


def driver():
    return LAB.on_host("sh", "-c", DRIVER)


def test_a_host_keeps_its_driver_and_gets_what_goes_with_it(tmp_path):
    with LAB.fresh():
        LAB.specify(**dict.fromkeys(BESIDE, "none"))
        assert LAB.provision(tmp_path, *SKIP).status == 0
        LAB.on_host("sh", "-c", FORGET)
        before = driver()

        LAB.specify(driver="keep", **dict.fromkeys(BESIDE, "auto"))
        done = LAB.provision(tmp_path, *SKIP)

        assert done.status == 0, done.text
        assert outcomes(tmp_path)["hosts"]["light-001"]["state"] == "changed"
        assert driver() == before
        assert "cuda-toolkit-12-9" in LAB.on_host("sh", "-c", CUDA)
        upgrade = LAB.on_host("apt-get", "--simulate", "-qq", "dist-upgrade").splitlines()
        assert not [line for line in upgrade if line.startswith("Inst nvidia-") and "container" not in line]

        gone = LAB.provision(tmp_path, *SKIP, playbook="deprovision", confirm="yes")
        assert gone.status == 0, gone.text
        assert driver() == before
        assert "cuda-toolkit-12-9" not in LAB.on_host("sh", "-c", CUDA)
