"""Inventory, PCIe link, NVLink and fabric: healthy machines pass, one broken field is named."""

import msgspec
import pytest

from gpucheck.checks.gpu import inventory
from gpucheck.checks.nvlink import fabric
from gpucheck.checks.nvlink import links as nvlink
from gpucheck.checks.p2p import topology
from gpucheck.checks.pcie import link as pcie_link
from gpucheck.model import Fabric, PackageVersion, Verdict
from tests.checks.judging import judge
from tests.fakes import SYSTEM, FakeHost
from tests.machines import DRIVER, h100, nvswitches, on_bus, p100, reading

P100S = (p100(0), p100(1))
H100S = (h100(0), h100(1))


def hgx(*gpus, service="active", version=f"{DRIVER}-1"):
    return FakeHost(
        nvml_=reading(*gpus),
        pci_=on_bus(*gpus) + nvswitches(4),
        services_={"nvidia-fabricmanager": service},
        packages_=(PackageVersion(name="nvidia-fabricmanager", version=version, held=True),),
    )


@pytest.mark.parametrize("check", [inventory, pcie_link, nvlink, fabric, topology])
@pytest.mark.parametrize("host", [FakeHost(nvml_=reading(*P100S), pci_=on_bus(*P100S)), hgx(*H100S)])
def test_a_healthy_machine_gets_no_complaint(check, host):
    assert {finding.verdict for finding in judge(check, host)} <= {Verdict.PASS, Verdict.SKIP}


def test_a_gpu_that_nvml_lost_is_named_by_its_bus_id():
    """NVML leaves out GPUs that failed to initialise; the PCI bus still shows them."""
    (finding,) = judge(inventory, FakeHost(nvml_=reading(P100S[0]), pci_=on_bus(*P100S)))

    assert (finding.verdict, finding.subject, finding.cause) == (Verdict.FAIL, "gpu:0000:04:00.0", "gpu-lost")


def test_gpus_without_sysfs_are_not_called_healthy():
    """A container without /sys: NVML alone cannot say that none is missing."""
    (finding,) = judge(inventory, FakeHost(nvml_=reading(*P100S)))

    assert finding.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(("virtual", "verdict"), [(None, Verdict.FAIL), ("kvm", Verdict.SKIP)])
def test_a_card_below_its_own_width_fails_on_bare_metal_only(virtual, verdict):
    """In a cloud machine x8 of x16 is by design and not ours to see."""
    narrow = msgspec.structs.replace(P100S[1], pcie=msgspec.structs.replace(P100S[1].pcie, width=8))
    host = FakeHost(
        nvml_=reading(P100S[0], narrow),
        pci_=on_bus(*P100S),
        system_=msgspec.structs.replace(SYSTEM, virtual=virtual),
    )

    healthy, finding = judge(pcie_link, host)

    assert healthy.verdict is Verdict.PASS
    assert (finding.verdict, finding.subject) == (verdict, "gpu:0000:04:00.0")
    assert (finding.seen, finding.wanted, finding.unit) == (8, 16, "lanes")


def test_an_idle_card_at_generation_1_is_healthy():
    """Cards lower the generation when idle; it means something only while copying."""
    idle = msgspec.structs.replace(P100S[0], pcie=msgspec.structs.replace(P100S[0].pcie, generation=1))

    assert judge(pcie_link, FakeHost(nvml_=reading(idle)))[0].verdict is Verdict.PASS


def test_a_width_that_nvml_does_not_tell_is_unknown():
    mute = msgspec.structs.replace(P100S[0], pcie=msgspec.structs.replace(P100S[0].pcie, width=None))

    assert judge(pcie_link, FakeHost(nvml_=reading(mute)))[0].verdict is Verdict.UNKNOWN


def test_one_link_down_of_eighteen_is_caught():
    """5.6 % of the bandwidth: the count sees it, a measurement may not."""
    links = tuple(msgspec.structs.replace(link, active=link.link != 5) for link in H100S[0].nvlinks)
    host = hgx(msgspec.structs.replace(H100S[0], nvlinks=links), H100S[1])

    first, second = judge(nvlink, host)

    assert (first.verdict, first.cause, first.seen, first.wanted) == (Verdict.FAIL, "nvlink-down", 17, 18)
    assert first.evidence == ("nvmlDeviceGetNvLinkState: 17 of 18 ports active, inactive: 5",)
    assert second.verdict is Verdict.PASS


def test_ports_that_are_not_there_are_missing_not_down():
    host = hgx(msgspec.structs.replace(H100S[0], nvlinks=H100S[0].nvlinks[:12]), H100S[1])

    assert judge(nvlink, host)[0].cause == "nvlink-missing"


@pytest.mark.parametrize(
    ("state", "service", "verdict", "cause"),
    [
        (Fabric(state="not-started"), "inactive", Verdict.FAIL, "fabric-manager-down"),
        (Fabric(state="in-progress"), "inactive", Verdict.FAIL, "fabric-manager-down"),
        (Fabric(state="in-progress"), "active", Verdict.WARN, None),
        (Fabric(state="completed", status=999), "active", Verdict.FAIL, "fabric-manager-down"),
    ],
)
def test_completed_and_success_is_the_only_ready_fabric(state, service, verdict, cause):
    """State 3 with a bad status has been seen on real machines: both must be right."""
    sick = msgspec.structs.replace(H100S[0], fabric=state)

    finding, manager = judge(fabric, hgx(sick, H100S[1], service=service))

    assert (finding.verdict, finding.cause) == (verdict, cause)
    assert manager.verdict is Verdict.PASS


@pytest.mark.parametrize("version", ["580.126.09-1", "580.178.05-1"])
def test_fabric_manager_of_another_version_fails(version):
    """To the last digit: it refuses to start otherwise and CUDA answers 802."""
    _, manager = judge(fabric, hgx(*H100S, version=version))

    assert (manager.verdict, manager.cause) == (Verdict.FAIL, "fabric-version-mismatch")


def test_a_machine_without_switches_has_no_fabric_to_judge():
    (finding,) = judge(fabric, FakeHost(nvml_=reading(*P100S), pci_=on_bus(*P100S)))

    assert finding.verdict is Verdict.SKIP


@pytest.mark.parametrize(("service", "verdict"), [("active", Verdict.PASS), ("inactive", Verdict.FAIL)])
def test_gpus_before_hopper_tell_nothing_so_fabric_manager_is_asked(service, verdict):
    """An A100 answers NOT_SUPPORTED to the fabric call."""
    a100s = [msgspec.structs.replace(gpu, fabric=None) for gpu in H100S]

    finding = judge(fabric, hgx(*a100s, service=service))[0]

    assert (finding.verdict, finding.cause) == (verdict, None if verdict is Verdict.PASS else "fabric-manager-down")
