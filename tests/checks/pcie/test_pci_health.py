"""Checks of the PCI tree: the links above the GPUs, ACS, IOMMU, NUMA and error counters."""

from dataclasses import replace

import msgspec
import pytest

from gpucheck.checks.pcie import acs, iommu, numa
from gpucheck.checks.pcie import errors as pcie_errors
from gpucheck.checks.pcie import path as pcie_path
from gpucheck.model import AcsControl, AerCounts, NvmlGap, PciDevice, PcieErrors, PcieLink, Verdict
from tests.checks.judging import judge, with_health
from tests.fakes import NO_DRIVER, SYSTEM, FakeHost
from tests.machines import p100, reading

FAIL, WARN, SKIP, PASS, UNKNOWN = Verdict.FAIL, Verdict.WARN, Verdict.SKIP, Verdict.PASS, Verdict.UNKNOWN
GEN4 = PcieLink(generation=4, width=16, max_generation=4, max_width=16)
ROOT, UP, DOWN0, DOWN1 = "0000:00:01.0", "0000:01:00.0", "0000:02:00.0", "0000:02:01.0"
IDLE = AcsControl(capability=0x5F, control=0)


def bridge(bus_id, kind, *path, **more):
    fields = {"acs": IDLE, "config_readable": True, "link": GEN4, "aer": AerCounts(correctable=0, non_fatal=0, fatal=0)}
    return PciDevice(
        bus_id=bus_id, vendor_id="1000", device_id="c010", class_id="060400", kind=kind, path=path, **(fields | more)
    )


def gpu(bus_id, down, **more):
    fields = {"link": GEN4, "iommu_group": "30", "iommu_type": "identity", "numa_node": 0}
    return PciDevice(
        bus_id=bus_id, vendor_id="10de", device_id="15f8", class_id="030200", path=(ROOT, UP, down), **(fields | more)
    )


def tree(**changes):
    """Two GPUs below one switch; changes: fields of a function by its name."""
    functions = {
        "root": bridge(ROOT, "root-port"),
        "up": bridge(UP, "switch-upstream", ROOT),
        "down0": bridge(DOWN0, "switch-downstream", ROOT, UP),
        "down1": bridge(DOWN1, "switch-downstream", ROOT, UP),
        "gpu0": gpu("0000:03:00.0", DOWN0),
        "gpu1": gpu("0000:04:00.0", DOWN1),
    }
    return tuple(msgspec.structs.replace(f, **changes.get(name, {})) for name, f in functions.items())


def host(pci, virtual=None, uptime="36000.00 1.0", nodes=("node0", "node1"), errors=None):
    gpus = [with_health(p100(n), **({"pcie_errors": errors} if errors else {})) for n in range(2)]
    lists = {"/sys/devices/system/node/node0/cpulist": "0-15\n", "/sys/devices/system/node/node1/cpulist": "16-31\n"}
    return FakeHost(
        nvml_=reading(*(msgspec.structs.replace(g, cpu_affinity="0-15") for g in gpus)),
        pci_=pci,
        system_=msgspec.structs.replace(SYSTEM, virtual=virtual),
        files={"/proc/uptime": uptime, "/proc/cmdline": "ro quiet", **lists},
        folders={"/sys/devices/system/node": (*nodes, "online")},
    )


@pytest.mark.parametrize("check", [acs, iommu, numa, pcie_errors, pcie_path], ids=lambda c: c.NAME)
def test_a_healthy_tree_gets_no_complaint(check):
    """Two GPUs below one switch."""
    found = judge(check, host(tree()))

    assert {finding.verdict for finding in found} == {PASS}


NARROW = PcieLink(generation=2, width=16, max_generation=4, max_width=16)


@pytest.mark.parametrize(
    ("changes", "subject"),
    [
        ({"root": {"link": NARROW}, "up": {"link": NARROW}}, f"link:{ROOT}"),
        ({"up": {"link": NARROW}}, f"link:{UP}"),
        ({"root": {"link": msgspec.structs.replace(GEN4, width=8)}}, f"link:{ROOT}"),
    ],
)
def test_a_reduced_uplink_is_named_once_with_the_gpus_behind_it(changes, subject):
    """A link has two ends; both may tell of it."""
    (finding,) = judge(pcie_path, host(tree(**changes)))

    assert (finding.verdict, finding.cause, finding.subject) == (FAIL, "uplink-downgraded", subject)
    assert "0000:03:00.0, 0000:04:00.0" in finding.evidence[1]


def test_the_gpus_own_idle_link_is_left_to_its_own_check():
    """An idle card lowers its speed, and the port above it shows the same link."""
    slow = {"link": msgspec.structs.replace(GEN4, generation=1)}
    (finding,) = judge(pcie_path, host(tree(gpu0=slow, down0=slow)))

    assert finding.verdict is PASS


@pytest.mark.parametrize(
    ("control", "verdict"), [(0x04, WARN), (0x08, WARN), (0x20, WARN), (0x1D, WARN), (0x01, PASS), (0x43, PASS)]
)
def test_only_bits_that_redirect_count(control, verdict):
    """Source validation, translation blocking and direct translated P2P reroute nothing."""
    (finding,) = judge(acs, host(tree(down1={"acs": AcsControl(capability=0x7F, control=control)})))

    assert finding.verdict is verdict
    assert (finding.cause, DOWN1 in finding.fix) == (("acs-redirect", True) if verdict is WARN else (None, False))


def card(bus_id, down, **more):
    fields = {"infiniband_names": ("mlx5_0",), "net_names": ("ibp1s0",)}
    return PciDevice(
        bus_id=bus_id, vendor_id="15b3", device_id="1021", class_id="020700", path=(ROOT, UP, down), **(fields | more)
    )


REDIRECTING = AcsControl(capability=0x7F, control=0x1D)


def gpu_and_card(**more):
    """A GPU and a network card below one switch, as on HGX boards; the GPU's own port redirects."""
    root, up, down0, down1, one, _ = tree(down0={"acs": REDIRECTING})
    return root, up, down0, down1, one, card("0000:04:00.0", DOWN1, **more)


def test_acs_redirection_between_a_gpu_and_its_network_card_costs_gpudirect_rdma():
    (finding,) = judge(acs, host(gpu_and_card()))

    assert (finding.verdict, finding.cause) == (WARN, "acs-redirect")
    assert finding.seen == "ACS redirect on at 1 PCIe bridge"
    assert "GPUDirect RDMA" in finding.why
    assert "GPU peer copies" not in finding.why


def test_network_card_without_rdma_is_no_peer_of_a_gpu():
    (finding,) = judge(acs, host(gpu_and_card(infiniband_names=())))

    assert (finding.verdict, finding.cause) == (SKIP, None)


def test_acs_redirection_of_both_kinds_of_traffic_is_one_finding():
    pci = (*tree(down0={"acs": REDIRECTING}, down1={"acs": REDIRECTING}), card("0000:05:00.0", DOWN1))
    (finding,) = judge(acs, host(pci))

    assert finding.seen == "ACS redirect on at 2 PCIe bridges"
    assert "GPU peer copies and GPUDirect RDMA" in finding.why
    assert f"'pci=disable_acs_redir={DOWN0};{DOWN1}'" in finding.fix


def test_acs_above_the_shared_switch_does_not_concern_the_pair():
    """Their traffic never gets there."""
    (finding,) = judge(acs, host(tree(root={"acs": AcsControl(capability=0x5F, control=0x1D)})))

    assert finding.verdict is PASS


def test_registers_that_only_root_may_read_are_unknown():
    """With the command that tells."""
    hidden = {"acs": None, "config_readable": False}
    (finding,) = judge(acs, host(tree(down0=hidden, down1=hidden)))

    assert (finding.verdict, finding.fix) == (UNKNOWN, "sudo gpucheck verify --only acs")


@pytest.mark.parametrize(
    ("kind", "virtual", "verdict"),
    [
        ("DMA", None, WARN),
        ("DMA-FQ", None, WARN),
        ("identity", None, PASS),
        ("DMA", "kvm", SKIP),
        (None, None, UNKNOWN),
    ],
)
def test_a_translating_iommu_is_a_fault_on_bare_metal(kind, virtual, verdict):
    """In a virtual machine it is not ours to see."""
    (finding,) = judge(iommu, host(tree(gpu0={"iommu_type": kind}, gpu1={"iommu_type": kind}), virtual=virtual))

    assert (finding.verdict, finding.cause) == (verdict, "iommu-translation" if verdict is WARN else None)


def test_no_iommu_at_all_passes():
    """No group, nothing that translates."""
    none = {"iommu_group": None, "iommu_type": None}
    (finding,) = judge(iommu, host(tree(gpu0=none, gpu1=none)))

    assert finding.verdict is PASS


def test_a_gpu_whose_node_the_firmware_does_not_tell_is_named():
    """sysfs prints -1."""
    found = judge(numa, host(tree(gpu1={"numa_node": None})))

    assert [(f.verdict, f.subject) for f in found] == [(PASS, "gpu:0000:03:00.0"), (WARN, "gpu:0000:04:00.0")]


def test_nvml_naming_cpus_of_another_node_is_a_disagreement():
    """NVML says 0-15, the kernel node 1."""
    found = judge(numa, host(tree(gpu1={"numa_node": 1})))

    assert [(f.verdict, f.cause) for f in found] == [(PASS, None), (WARN, "wrong-numa-placement")]


def test_a_machine_of_one_node_has_nothing_to_place():
    """Whatever the firmware says."""
    (finding,) = judge(numa, host(tree(gpu0={"numa_node": None}), nodes=("node0",)))

    assert finding.verdict is SKIP


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        (AerCounts(correctable=500, non_fatal=0, fatal=0), PASS),
        (AerCounts(correctable=700, non_fatal=0, fatal=0), WARN),
        (AerCounts(correctable=0, non_fatal=1, fatal=0), FAIL),
        (AerCounts(correctable=0, non_fatal=0, fatal=1), FAIL),
    ],
)
def test_corrected_errors_are_judged_by_their_rate_and_lost_packets_always(counts, verdict):
    """The machine is up for ten hours; errors are often booked at the far end of the link."""
    (finding,) = judge(pcie_errors, host(tree(down1={"aer": counts})))

    assert finding.verdict is verdict
    assert (finding.subject, finding.cause) == (("host", None) if verdict is PASS else (f"link:{DOWN1}", "pcie-errors"))


def test_replays_that_only_nvml_counts_are_seen():
    """The firmware may own AER."""
    none = {name: {"aer": None} for name in ("root", "up", "down0", "down1")}
    made = host(tree(**none), errors=PcieErrors(replays=9000))

    assert {(f.verdict, f.cause) for f in judge(pcie_errors, made)} == {(WARN, "pcie-errors")}


def test_nobody_counting_is_no_pass():
    """Neither AER nor NVML."""
    names = ("root", "up", "down0", "down1")
    made = host(tree(**{name: {"aer": None} for name in names}), errors=PcieErrors())
    calls = ("nvmlDeviceGetPcieReplayCounter", "NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR")
    gaps = {
        code: tuple(
            NvmlGap(call=call, subject=f"gpu:{gpu.pci_bus_id}", code=code, name="Refused")
            for gpu in made.nvml().gpus
            for call in calls
        )
        for code in (3, 999)
    }

    def with_gaps(code):
        return replace(made, nvml_=msgspec.structs.replace(made.nvml(), gaps=gaps[code]))

    assert {f.verdict for f in judge(pcie_errors, with_gaps(3))} == {SKIP}
    assert {f.verdict for f in judge(pcie_errors, with_gaps(999))} == {UNKNOWN}
    assert {f.verdict for f in judge(pcie_errors, made)} == {UNKNOWN}
    assert {f.because_of for f in judge(pcie_errors, replace(made, nvml_=NO_DRIVER))} == {"driver"}


def test_rate_of_corrected_errors_needs_the_uptime():
    """Without it 700 errors are no rate; uncorrected ones have none anyway."""
    many, few = AerCounts(correctable=700, non_fatal=0, fatal=0), AerCounts(correctable=10, non_fatal=0, fatal=0)
    lost = AerCounts(correctable=0, non_fatal=0, fatal=1)

    def verdict(counts):
        return judge(pcie_errors, host(tree(down1={"aer": counts}), uptime=""))[0].verdict

    assert [verdict(counts) for counts in (many, few, lost)] == [UNKNOWN, PASS, FAIL]


@pytest.mark.parametrize(
    "link", [PcieLink(), PcieLink(generation=4, width=16), PcieLink(max_generation=4, max_width=16)]
)
def test_uplink_without_a_reported_state_is_unknown(link):
    """One link that sysfs does not report is not at full speed because the others are."""
    (finding,) = judge(pcie_path, host(tree(up={"link": link})))

    assert finding.verdict is UNKNOWN
    assert "1 of 2 PCIe links" in finding.why


def test_numa_node_of_a_gpu_that_sysfs_does_not_show_is_unknown():
    """The firmware has not been asked; only a GPU in sysfs with node -1 is the firmware's doing."""
    pci = tuple(device for device in tree() if device.bus_id != "0000:04:00.0")

    assert [f.verdict for f in judge(numa, host(pci))] == [PASS, UNKNOWN]


@pytest.mark.parametrize(
    ("folders", "verdict"),
    [
        ({"/sys/devices/system": ("cpu", "memory")}, SKIP),
        ({"/sys/devices/system/node": ("node0", "node7")}, UNKNOWN),
        ({"/sys/devices/system/node": ()}, UNKNOWN),
        ({}, UNKNOWN),
    ],
)
def test_numa_nodes_that_cannot_be_read_are_not_one_node(folders, verdict):
    """A kernel without NUMA support has no such directory and still shows its CPUs. Node 7 has no readable CPU list."""
    (finding,) = judge(numa, replace(host(tree()), folders=folders))

    assert finding.verdict is verdict


def test_iommu_type_of_one_gpu_that_cannot_be_read_is_unknown():
    """The other one's identity does not speak for it."""
    (finding,) = judge(iommu, host(tree(gpu1={"iommu_type": None})))

    assert finding.verdict is UNKNOWN
    assert "1 of 2 GPUs" in finding.why
