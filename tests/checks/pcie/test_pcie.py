"""Links, errors, ACS, IOMMU and NUMA nodes of a tree with two GPUs below one switch: what was read, and the codes."""

import pytest
from msgspec.structs import replace

from gpucheck.checks.pcie import acs, bar1, link, numa, path
from gpucheck.checks.pcie import errors as pcie_errors
from gpucheck.diagnose import diagnose
from gpucheck.measure.reporting.surroundings import surroundings
from gpucheck.model import AcsControl, AerCounts, NvmlGap, PciDevice, PcieErrors, PcieLink
from gpucheck.render.findings import group_equal
from gpucheck.topology.pcie import bridges_between, redirects
from tests.checks.judging import FAIL, WARN, codes, judge, with_health
from tests.fakes import NO_DRIVER, SYSTEM, facts
from tests.machines import h100, on_bus, p100, reading
from tests.measure.benches import Bench

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
    return tuple(replace(f, **changes.get(name, {})) for name, f in functions.items())


NODES = "/sys/devices/system/node"
TWO_NODES = {NODES: ("node0", "node1", "online")}


def host(pci, uptime="36000.00 1.0", folders=TWO_NODES, errors=None, gaps=(), **system):
    gpus = [with_health(p100(n), **({"pcie_errors": errors} if errors else {})) for n in range(2)]
    nvml = reading(*(replace(g, cpu_affinity="0-15") for g in gpus))
    lists = {f"{NODES}/node0/cpulist": "0-15\n", f"{NODES}/node1/cpulist": "16-31\n"}
    return facts(
        nvml=replace(nvml, gaps=gaps),
        pci=pci,
        system=replace(SYSTEM, **system),
        files={"/proc/uptime": uptime, "/proc/cmdline": "ro quiet", **lists},
        folders=folders,
    )


# --- Own links and uplinks ---


def trained(index, **fields):
    """A P100 whose link has these fields."""
    gpu = p100(index)
    return replace(gpu, pcie=replace(gpu.pcie, **fields))


def linked(*gpus, pci=(), virtual=None):
    return facts(nvml=reading(*gpus), pci=pci, system=replace(SYSTEM, virtual=virtual))


def by_sysfs(width):
    """NVML reports no link, and sysfs does."""
    gpu = replace(p100(0), pcie=PcieLink())
    (device,) = on_bus(gpu)
    return linked(gpu, pci=(replace(device, link=PcieLink(width=width, max_width=16)),))


def in_slot(lanes):
    """A card with eight of its sixteen lanes, in a slot with so many."""
    (device,) = on_bus(trained(0, width=8))
    return linked(trained(0, width=8), pci=(replace(device, link=replace(device.link, max_width=lanes)),))


CARD = PciDevice(
    bus_id="0000:05:00.0",
    vendor_id="15b3",
    device_id="1017",
    class_id="020700",
    infiniband_names=("mlx5_0", "mlx5_1"),
    link=PcieLink(generation=4, width=8, max_generation=4, max_width=16),
)
WITH_CARD = (*on_bus(p100(0)), CARD)
SLOW = {"link": replace(GEN4, generation=1)}
SLOWER = {"link": replace(GEN4, generation=2)}


# --- Errors: the machine is up for ten hours ---

NO_AER = {name: {"aer": None} for name in ("root", "up", "down0", "down1")}
MANY, FEW = ({"aer": AerCounts(correctable=count, non_fatal=0, fatal=0)} for count in (700, 10))
FATAL = {"aer": AerCounts(correctable=0, non_fatal=0, fatal=1)}


def uncounted(code):
    """Neither AER nor NVML counts, which NVML explains with a code."""
    calls = ("nvmlDeviceGetPcieReplayCounter", "NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR")
    ids = [f"gpu:{p100(n).pci_bus_id}" for n in range(2) if code]
    gaps = tuple(NvmlGap(call=call, subject=subject, code=code, name="Refused") for subject in ids for call in calls)
    return host(tree(**NO_AER), errors=PcieErrors(), gaps=gaps)


# --- ACS ---

REDIRECTING = {"acs": AcsControl(capability=0x7F, control=0x1D)}
HIDDEN = {"acs": None, "config_readable": False}


def control(bits):
    return host(tree(down1={"acs": AcsControl(capability=0x7F, control=bits)}))


def card(bus_id, **more):
    fields = {"infiniband_names": ("mlx5_0",), "net_names": ("ibp1s0",), "link": PcieLink()}
    return replace(CARD, bus_id=bus_id, path=(ROOT, UP, DOWN1), **(fields | more))


def gpu_and_card(**more):
    """A GPU and a network card below one switch, as on HGX boards; the GPU's own port redirects."""
    root, up, down0, down1, one, _ = tree(down0=REDIRECTING)
    return root, up, down0, down1, one, card("0000:04:00.0", **more)


BOTH = (*tree(down0=REDIRECTING, down1=REDIRECTING), card("0000:05:00.0"))


# --- IOMMU and NUMA ---

GUEST = {"driver": "vfio-pci"}
ELSEWHERE = replace(gpu("0000:83:00.0", DOWN1), path=("0000:80:01.0",), **GUEST)  # below another root port
NO_GROUP = {"iommu_group": None, "iommu_type": None}
WITHOUT_GPU_1 = tuple(device for device in tree() if device.bus_id != "0000:04:00.0")


def groups(group, **system):
    return host(tree(gpu0=group, gpu1=group), **system)


@pytest.mark.parametrize(
    ("check", "host", "found"),
    [
        # In a cloud machine x8 of x16 is by design, and the guest does not see the slot.
        (link, linked(p100(0), trained(1, width=8), virtual="kvm"), [None, "nvml.set-by-the-host"]),
        # NVML reports the lanes of the card as the most, sysfs those of the slot too: an x8 slot has no more.
        (link, in_slot(8), None),
        (link, in_slot(16), "pcie.width-reduced"),
        (link, in_slot(None), "pcie.width-reduced"),
        (link, linked(trained(0, generation=1)), None),  # an idle card lowers its generation
        # Lanes by sysfs count where NVML reports none, and pass nothing.
        (link, by_sysfs(8), "pcie.width-reduced"),
        (link, by_sysfs(16), "nvml.no-result"),
        (link, linked(p100(0), pci=WITH_CARD), [None, "pcie.nic-lanes-reduced"]),
        (link, linked(p100(0), pci=WITH_CARD, virtual="kvm"), None),
        # The GPU's own link, which the port above shows too, is left to its own check.
        (path, host(tree(gpu0=SLOW, down0=SLOW)), None),
        # One link that sysfs does not report is not at full speed because the others are.
        (path, host(tree(up={"link": PcieLink()})), "pcie.uplinks-unknown"),
        (path, host(tree(up={"link": PcieLink(generation=4, width=16)})), "pcie.uplinks-unknown"),
        (path, host(tree(up={"link": PcieLink(max_generation=4, max_width=16)})), "pcie.uplinks-unknown"),
        # Corrected errors count by their rate, which needs the uptime, and lost packets always.
        (pcie_errors, host(tree(down1={"aer": AerCounts(correctable=500, non_fatal=0, fatal=0)})), None),
        (pcie_errors, host(tree(down1=MANY)), "pcie.packets-repeated"),
        (pcie_errors, host(tree(down1=MANY), uptime=""), "pcie.error-rate-unknown"),
        (pcie_errors, host(tree(down1=FEW), uptime=""), None),
        (pcie_errors, host(tree(down1=FATAL), uptime=""), "pcie.packets-lost"),
        # The firmware may own AER; then NVML's replays count.
        (pcie_errors, host(tree(**NO_AER), errors=PcieErrors(replays=9000)), ["pcie.packets-repeated"] * 2),
        (pcie_errors, uncounted(3), "pcie.errors-not-counted"),
        (pcie_errors, uncounted(999), ["nvml.call-failed"] * 2),
        (pcie_errors, uncounted(None), ["nvml.no-result"] * 2),
        (pcie_errors, facts(pci=tree(**NO_AER), nvml=NO_DRIVER), "nvml.not-available"),
        # Source validation, translation blocking and direct translated P2P reroute nothing.
        *[(acs, control(bits), "topology.acs-redirects-gpus") for bits in (0x04, 0x08, 0x20, 0x1D)],
        *[(acs, control(bits), None) for bits in (0x01, 0x43)],
        (acs, host(gpu_and_card()), "topology.acs-redirects-rdma"),
        (acs, host(BOTH), "topology.acs-redirects-both"),
        (acs, host(gpu_and_card(infiniband_names=())), "pcie.acs-no-shared-switch"),
        # Traffic of a pair does not get above the switch that both share; registers may be for root only.
        (acs, host(tree(root=REDIRECTING)), None),
        (acs, host(tree(down0=HIDDEN, down1=HIDDEN)), "pcie.acs-needs-root"),
        # A GPU of a virtual machine needs both, and is no peer of the others.
        (acs, host(tree(down1=REDIRECTING, gpu0=GUEST)), "gpu.some-passed-through"),
        (acs, host(tree(down1=REDIRECTING, gpu0=GUEST, gpu1=GUEST)), "gpu.some-passed-through"),
        (acs, host((*tree(down1=REDIRECTING), ELSEWHERE)), "topology.acs-redirects-gpus"),
        ("iommu", groups({"iommu_type": "DMA-FQ"} | GUEST), "gpu.some-passed-through"),
        (
            "iommu",
            host(tree(gpu0={"iommu_type": "DMA-FQ"}, gpu1={"iommu_type": "DMA-FQ"} | GUEST)),
            "pcie.iommu-one-gpu",
        ),
        ("iommu", groups({"iommu_type": "DMA"}, virtual="kvm"), "nvml.set-by-the-host"),
        ("iommu", groups({"iommu_type": "DMA"}, arch="ppc64le"), "pcie.iommu-by-design"),
        ("iommu", groups({"iommu_type": None}), "pcie.iommu-type-unknown"),
        ("iommu", host(tree(gpu1={"iommu_type": None})), "pcie.iommu-type-unknown"),
        ("iommu", groups(NO_GROUP), None),
        (numa, host(tree(gpu1={"numa_node": None})), [None, "pcie.numa-not-reported"]),  # sysfs prints -1
        # NVML reports CPUs 0-15, the kernel node 1.
        (numa, host(tree(gpu1={"numa_node": 1})), [None, "pcie.numa-disagreement"]),
        (numa, host(WITHOUT_GPU_1), [None, "pcie.gpu-not-in-sysfs"]),
        # A host of one node has nothing to place, whatever the firmware reports; a kernel without NUMA support has no
        # such directory and still shows its CPUs. Node 7 has no readable CPU list.
        (numa, host(tree(gpu0={"numa_node": None}), folders={NODES: ("node0", "online")}), "pcie.one-numa-node"),
        (numa, host(tree(), folders={"/sys/devices/system": ("cpu", "memory")}), "pcie.one-numa-node"),
        *[
            (numa, host(tree(), folders=folders), "pcie.numa-nodes-unknown")
            for folders in ({NODES: ("node0", "node7")}, {NODES: ()}, {})
        ],
    ],
)
def test_codes_of_a_host(check, host, found):
    assert codes(check, host) == (found if isinstance(found, list) else [found])


def test_lost_lanes_are_counted_on_their_gpu_or_card():
    _, gpu = judge(link, linked(p100(0), trained(1, width=8)))
    *_, nic = judge(link, linked(p100(0), pci=WITH_CARD))

    assert (gpu.subject, gpu.seen, gpu.wanted, gpu.unit) == ("gpu:0000:04:00.0", 8, 16, "lanes")
    assert gpu.evidence[0] == "current Gen3 x8"
    assert (nic.subject, nic.seen, nic.wanted) == ("nic:0000:05:00.0", "Gen4 x8", "Gen4 x16")


@pytest.mark.parametrize(
    ("changes", "subject"),
    [
        ({"root": SLOWER, "up": SLOWER}, f"link:{ROOT}"),
        ({"up": SLOWER}, f"link:{UP}"),
        ({"root": {"link": replace(GEN4, width=8)}}, f"link:{ROOT}"),
    ],
)
def test_a_reduced_uplink_is_named_once_with_the_gpus_behind_it(changes, subject):
    """A link has two ends; both may tell of it."""
    (finding,) = judge(path, host(tree(**changes)))

    assert (finding.code, finding.subject) == ("pcie.uplink-reduced", subject)
    assert "0000:03:00.0, 0000:04:00.0" in finding.evidence[1]


def test_errors_are_those_of_the_end_of_the_link_that_counts_them():
    (finding,) = judge(pcie_errors, host(tree(down1=FATAL)))

    assert finding.subject == f"link:{DOWN1}"


@pytest.mark.parametrize(
    ("pci", "peers", "rdma"), [(gpu_and_card(), [], [DOWN0]), (BOTH, [DOWN0, DOWN1], [DOWN0, DOWN1])]
)
def test_one_command_has_every_redirecting_bridge(pci, peers, rdma):
    """Redirection costs peer copies between two GPUs, GPUDirect RDMA between a GPU and its network card."""
    between = bridges_between(pci)
    (finding,) = judge(acs, host(pci))

    assert [bridge.bus_id for bridge in between.gpus if redirects(bridge)] == peers
    assert [bridge.bus_id for bridge in between.rdma if redirects(bridge)] == rdma
    assert f"pci=disable_acs_redir={';'.join(rdma)}" in finding.fix


@pytest.mark.parametrize(
    ("vendor", "ats", "code"),
    [
        ("15b3", True, "pcie.acs-for-guests"),
        ("15b3", False, "topology.acs-redirects-rdma"),
        ("1000", True, "topology.acs-redirects-rdma"),
    ],
)
def test_redirection_is_right_where_cards_are_for_virtual_machines(vendor, ats, code):
    """Below the switch of a ConnectX that has ATS, as rdma_topo of rdma-core has it."""
    pci = (replace(one, vendor_id=vendor) if one.bus_id == UP else one for one in gpu_and_card(translates=ats))

    assert codes(acs, host(tuple(pci))) == [code]


def stated(findings):
    """What is wrong, and how sure that is."""
    found = (one for one in findings if one.verdict in (FAIL, WARN))
    return [(one.verdict, one.cause, one.confidence, one.subject) for one in found]


@pytest.mark.parametrize(
    ("check", "gpus", "pci", "subject"),
    [
        (link, (trained(0, width=8), p100(1)), tree(), f"gpu:{p100(0).pci_bus_id}"),
        (path, (p100(0), p100(1)), tree(up=SLOW), f"link:{UP}"),
        (path, (p100(0), p100(1)), tree(up={"link": replace(GEN4, width=8)}), f"link:{UP}"),
    ],
)
@pytest.mark.parametrize("virtual", [None, "kvm"])
def test_one_reading_has_one_verdict_on_a_host_and_among_observations(check, gpus, pci, subject, virtual):
    """bandwidth has the same reading as verify: idle, but of lanes and of links above a switch that is no excuse."""
    found = facts(nvml=reading(*gpus), pci=pci, system=replace(SYSTEM, virtual=virtual))
    scene = Bench(gpus, pci=pci).scene(virtual=virtual)
    judged, seen = stated(judge(check, found)), stated(diagnose(surroundings(scene)))

    assert judged == seen
    assert [one[3] for one in judged] == ([] if virtual else [subject])


def test_a_virtual_machine_says_once_what_its_host_hides():
    guest = host(tree(), virtual="kvm")
    narrow = replace(h100(0), pcie=replace(h100(0).pcie, width=8), bar1_bytes=256 << 20)
    skipped = [finding for check in (path, acs, "iommu") for finding in judge(check, guest)]
    skipped += [finding for check in (link, bar1) for finding in judge(check, linked(narrow, virtual="kvm"))]
    (group,) = group_equal(skipped)

    assert group.checks == ("pcie-path", "acs", "iommu", "pcie-link", "bar1")
    assert "the host of this kvm virtual machine" in group.seen


def data_direct(**controls):
    """Root port, switch, and below it the DMA function of a ConnectX-8 and a second switch with a GPU."""
    bits = {"root": 0x1C, "card": 0x19, "gpu": 0x15} | controls
    ways = {"root": "0000:00:00.0", "up": "0000:01:00.0", "card": "0000:02:00.0", "gpu": "0000:02:01.0"}
    bridges = [
        PciDevice(
            bus_id=ways[name],
            vendor_id="15b3",
            device_id="197c",
            class_id="060400",
            config_readable=control is not None,
            acs=None if control is None else AcsControl(capability=0x7F, control=control),
        )
        for name, control in bits.items()
    ]
    above = (ways["root"], ways["up"])
    ends = [("15b3", "2100", "080100", (*above, ways["card"])), ("10de", "31c2", "030200", (*above, ways["gpu"]))]
    functions = [
        PciDevice(bus_id=f"0000:0{n}:00.0", vendor_id=vendor, device_id=device, class_id=kind, path=path)
        for n, (vendor, device, kind, path) in enumerate(ends, 3)
    ]
    return host((*bridges, *functions))


@pytest.mark.parametrize(
    ("controls", "code"),
    [
        ({}, None),
        ({"root": 0x5C, "card": 0x7B & ~0x04, "gpu": 0x17}, None),
        ({"gpu": 0x1D}, "pcie.acs-of-data-direct"),
        ({"card": 0x00}, "pcie.acs-of-data-direct"),
        ({"root": 0x1D}, "pcie.acs-of-data-direct"),
        ({"gpu": None}, "pcie.acs-needs-root"),
    ],
)
def test_data_direct_needs_exact_bits(controls, code):
    """As rdma_topo of rdma-core has them: off everywhere is wrong there."""
    (finding,) = judge(acs, data_direct(**controls))

    assert finding.code == code
